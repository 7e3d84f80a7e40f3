"""Who holds a file open or mapped, found in one walk over /proc."""

from __future__ import annotations

import os
from collections.abc import Collection, Iterator
from typing import NamedTuple

UNKNOWN = -1
"""no user has this number"""


class Holders(NamedTuple):
    pids: dict[str, tuple[int, ...]]
    """for every path asked about"""
    hidden: frozenset[int]
    """users of the processes that could not be looked into, pid 1 apart; UNKNOWN for those of
    whom not even that can be seen"""


def holders(paths: Collection[str], *, mapped: bool = False) -> Holders:
    """The processes that have these files open, and mapped too where asked.

    Mappings matter for shared memory, whose descriptor is usually closed after mmap; reading
    them costs far more than reading descriptors. A folder is held when a file in it is.
    """
    real = {path: os.path.realpath(path) for path in paths}
    pids: dict[str, list[int]] = {path: [] for path in paths}
    hidden: set[int] = set()
    visible = _pids()
    if 1 not in visible:  # /proc mounted with hidepid=2: only our own are listed
        hidden.add(UNKNOWN)
    for pid in visible if real else ():
        try:
            held = set(_open_paths(pid))
            maps = _maps(pid) if mapped else ""
        except PermissionError:
            hidden.update(_user(pid) if pid != 1 else ())
            continue
        except (FileNotFoundError, ProcessLookupError):
            continue  # it ended while we looked
        for path, target in real.items():
            inside = target + "/"
            if any(p == target or p.startswith(inside) for p in held) or f" {target}\n" in maps:
                pids[path].append(pid)
    return Holders({path: tuple(found) for path, found in pids.items()}, frozenset(hidden))


def _pids() -> list[int]:
    return [int(name) for name in os.listdir("/proc") if name.isdigit()]


def _open_paths(pid: int) -> Iterator[str]:
    """The links' own text: following them could hang on a dead file server."""
    folder = f"/proc/{pid}/fd"
    for name in os.listdir(folder):
        try:
            target = os.readlink(f"{folder}/{name}")
        except FileNotFoundError:
            continue  # closed while we looked
        if target.startswith("/"):
            yield target


def _maps(pid: int) -> str:
    with open(f"/proc/{pid}/maps", encoding="utf-8", errors="replace") as file:
        return file.read()


def _user(pid: int) -> list[int]:
    """Not by the owner of /proc/PID: that is root for a process that hides itself."""
    try:
        with open(f"/proc/{pid}/status", encoding="utf-8", errors="replace") as file:
            return [int(line.split()[1]) for line in file if line.startswith("Uid:")]
    except PermissionError:  # hidepid=1
        return [UNKNOWN]
    except (FileNotFoundError, ProcessLookupError):
        return []
