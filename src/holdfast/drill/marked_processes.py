"""The processes of a drill, known by a variable that all of them were started with."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Iterable
from pathlib import Path

MARK = "HOLDFAST_DRILL"
"""its value is the witness's folder of the job"""


def find(folder: Path | str) -> list[int]:
    """Pids of processes of jobs in that folder, or below it; not our own."""
    wanted = f"{MARK}={folder}".encode()
    found = []
    for entry in os.scandir("/proc"):
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            with contextlib.suppress(OSError):
                content = Path(entry.path, "environ").read_bytes()
                if any(_is(word, wanted) for word in content.split(b"\0")):
                    found.append(int(entry.name))
    return found


def _is(word: bytes, wanted: bytes) -> bool:
    return word == wanted or word.startswith(wanted + b"/")


def end(folder: Path | str, *, seconds: float = 10.0) -> list[int]:
    """SIGKILL to all of them, until none comes after; those that stay."""
    until = time.monotonic() + seconds
    while (pids := find(folder)) and time.monotonic() < until:
        kill(pids)
        time.sleep(0.05)
    return pids


def kill(pids: Iterable[int]) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def command(pid: int) -> str:
    with contextlib.suppress(OSError):
        words = Path(f"/proc/{pid}/cmdline").read_bytes().split(b"\0")
        return b" ".join(words).decode(errors="replace").strip()[:120]
    return ""
