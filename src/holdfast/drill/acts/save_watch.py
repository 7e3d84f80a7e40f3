"""Catches a process with a file of a checkpoint half written, and stops it there.

Where we may (fanotify, as root): each open() below the folder waits for us, and the process that
opens is told to stop before it is let go on, so that it has opened the file and written nothing.
Elsewhere (inotify): all ranks are stopped at the first sign of a write, and go on if it was over
by then. A process counts as saving while it holds a file open for writing that is new or changed.
"""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import NamedTuple

from holdfast.drill.stage import wait_until
from holdfast.system.fanotify import OpenGate, Opening
from holdfast.system.inotify import FolderWatch

LOOK_EVERY = 0.2
STOPPING = 5.0
"""seconds that the kernel has to stop a process"""


class FileState(NamedTuple):
    device: int
    inode: int
    size: int
    changed: int


class Caught(NamedTuple):
    pid: int
    """stopped"""
    path: str


class SaveWatch:
    def __init__(self, folder: Path, *, goes_on: Callable[[], bool]) -> None:
        """From now on; `goes_on`: the job may still save."""
        self._before = set(_files(folder))
        self._folder, self._goes_on = folder.resolve(), goes_on

    def by_opening(self, gate: OpenGate, wanted: Callable[[int], bool]) -> Caught | None:
        """None: the job ended before a process that is wanted saved."""
        while self._goes_on():
            opening = gate.next(LOOK_EVERY)
            if opening is not None and (found := self._stop_opener(gate, opening, wanted)):
                return found
        return None

    def by_writing(self, watch: FolderWatch, pids: Callable[[], list[int]]) -> Caught | None:
        """`pids`: processes that may be the one that saves. The others go on."""
        watched = pids()
        while self._goes_on():
            if not watch.wait(LOOK_EVERY):
                watched = pids()
                continue
            _signal(watched, signal.SIGSTOP)
            found = self._writing(watched)
            _signal((pid for pid in watched if found is None or pid != found.pid), signal.SIGCONT)
            if found is not None:
                return found
            watch.drain()
            watched = pids()
        return None

    def _stop_opener(
        self, gate: OpenGate, opening: Opening, wanted: Callable[[int], bool]
    ) -> Caught | None:
        if not wanted(opening.pid):
            gate.let(opening)
            return None
        _signal([opening.pid], signal.SIGSTOP)
        gate.let(opening)
        wait_until(lambda: _is_stopped(opening.pid), seconds=STOPPING, every=0.001)
        found = self._writing([opening.pid])
        if found is None:
            _signal([opening.pid], signal.SIGCONT)
        return found

    def _writing(self, pids: Iterable[int]) -> Caught | None:
        for pid in pids:
            for path, state in _open_for_writing(pid):
                inside = path.startswith(f"{self._folder}/")
                if inside and state not in self._before:  # a lock is as it was
                    return Caught(pid, path)
        return None


def pause_until_quiet(folder: Path, *, seconds: float, quiet: float = 0.5) -> None:
    """Until nothing was written there for a moment: a save that was under way is done."""
    end, since, seen = time.monotonic() + seconds, time.monotonic(), set(_files(folder))
    while time.monotonic() < end and time.monotonic() - since < quiet:
        time.sleep(0.05)
        if (now := set(_files(folder))) != seen:
            since, seen = time.monotonic(), now


def _files(folder: Path) -> Iterator[FileState]:
    for place, _, names in os.walk(folder):
        for name in names:
            with contextlib.suppress(OSError):
                yield _state(os.lstat(os.path.join(place, name)))


def _state(found: os.stat_result) -> FileState:
    return FileState(found.st_dev, found.st_ino, found.st_size, found.st_mtime_ns)


def _open_for_writing(pid: int) -> Iterator[tuple[str, FileState]]:
    with contextlib.suppress(OSError):
        for name in os.listdir(f"/proc/{pid}/fd"):
            with contextlib.suppress(OSError):
                flags = Path(f"/proc/{pid}/fdinfo/{name}").read_text().split("flags:")[1].split()[0]
                if int(flags, 8) & os.O_ACCMODE != os.O_RDONLY:
                    link = f"/proc/{pid}/fd/{name}"
                    yield os.readlink(link), _state(os.stat(link))


def _is_stopped(pid: int) -> bool:
    """All its threads: the one that opens may be any. One that has ended is, too."""
    try:
        tasks = os.listdir(f"/proc/{pid}/task")
        return all(_thread_state(pid, task) in "TtZX" for task in tasks)
    except OSError:
        return True


def _thread_state(pid: int, task: str) -> str:
    try:
        return Path(f"/proc/{pid}/task/{task}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "X"


def _signal(pids: Iterable[int], number: int) -> None:
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
