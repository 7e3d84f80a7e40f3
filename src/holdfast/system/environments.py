"""Environments of other processes, read so that one that hangs in the kernel delays no other.

Reading /proc/PID/environ takes the lock of that process's memory. A thread of it that waits for a
dead file server in a page fault may hold that lock: then the reader waits with it. So a child with
a deadline reads, and a process that did not answer is not asked again.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.system import deadline
from holdfast.system.proc import ProcessRow, folder

SECONDS = 1.0
MOST = 10_000
"""processes that are remembered"""


class EnvironmentReader:
    """Remembers what it read: an environment does not change, and a child for each look is dear."""

    def __init__(self) -> None:
        self._known: dict[tuple[int, int], list[bytes]] = {}

    def of(self, rows: Iterable[ProcessRow]) -> dict[int, list[bytes]]:
        """pid -> 'NAME=value' as bytes; empty when it is gone, hangs, or may not be read."""
        wanted = {(row.pid, row.started): row.pid for row in rows}
        unknown = [pid for key, pid in wanted.items() if key not in self._known]
        fresh = _read(unknown) if unknown else {}
        if len(self._known) > MOST:
            self._known.clear()
        for key, pid in wanted.items():
            found = fresh.get(pid, [])
            if found is None or found:  # one that was about to exec shows nothing for a moment
                self._known[key] = found or []
        return {pid: self._known.get(key, []) for key, pid in wanted.items()}


def _read(pids: list[int]) -> dict[int, list[bytes] | None]:
    """None for one that did not answer in time."""
    together = deadline.ask(
        {"all": lambda: msgspec.msgpack.encode({pid: environment(pid) for pid in pids})},
        seconds=SECONDS,
    )["all"]
    if not isinstance(together, Unread):
        return {**msgspec.msgpack.decode(together, type=dict[int, list[bytes]])}
    if len(pids) == 1:
        return {pids[0]: None}
    return {pid: found for one in pids for pid, found in _read([one]).items()}


def environment(pid: int) -> list[bytes]:
    """In this very process, so only for a child with a deadline. Empty when it is gone, or may not
    be read."""
    try:
        with open(f"{folder(pid)}/environ", "rb") as file:
            return file.read().split(b"\0")
    except OSError:
        return []


def value(settings: Iterable[bytes], name: bytes) -> bytes | None:
    return next((s[len(name) + 1 :] for s in settings if s.startswith(name + b"=")), None)
