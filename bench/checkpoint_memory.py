"""The memory of this process and its children while something happens, shared pages once."""

from __future__ import annotations

import threading
from types import TracebackType

import psutil

_LOOK_EVERY = 0.05
_COUNTED = ("Pss_Anon:", "Pss_Shmem:")
"""not what is mapped from files: the kernel drops that when it needs the room"""


class Peak:
    """`extra`: the most bytes beyond what there was at the start."""

    def __init__(self) -> None:
        self.extra = 0
        self._before = 0
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._watch)

    def __enter__(self) -> Peak:
        self._before = used()
        self._thread.start()
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        _error: BaseException | None,
        _trace: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()

    def _watch(self) -> None:
        while not self._end.wait(_LOOK_EVERY):
            self.extra = max(self.extra, used() - self._before)


def used() -> int:
    """Looked at in both directions: between two looks a page that the one process has mapped
    and the other just maps moves from its share to the other's, and would count one and a half
    times. The smaller sum is right when nothing moves, as at the peak."""
    me = psutil.Process()
    pids = [process.pid for process in [me, *me.children(recursive=True)]]
    return min(sum(map(_of, pids)), sum(map(_of, reversed(pids))))


def _of(pid: int) -> int:
    """Proportional: a page that two processes map counts half in each."""
    try:
        with open(f"/proc/{pid}/smaps_rollup") as file:
            lines = [line.split() for line in file]
    except (FileNotFoundError, ProcessLookupError):
        return 0
    return sum(int(line[1]) * 1024 for line in lines if line[0] in _COUNTED)
