"""Progress of reading large files, shown on stderr once it takes long."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from holdfast.cli import streams
from holdfast.text import size

EVERY = 2.0
"""seconds between two lines of progress"""


class Progress:
    """Call it with the number of bytes just read."""

    def __init__(self, paths: Sequence[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._paths = paths
        self._clock = clock
        self._next = clock() + EVERY
        self._read = 0
        self._total = -1

    def __call__(self, count: int) -> None:
        self._read += count
        if self._clock() < self._next:
            return
        if self._total < 0:
            self._total = _size_of(self._paths)
        # Packed files grow when read, and the length of a pipe is unknown.
        whole = f" of {size(self._total)}" if self._read <= self._total else ""
        streams.remark(f"read {size(self._read)}{whole}")
        self._next = self._clock() + EVERY


def _size_of(paths: Sequence[str]) -> int:
    """Of all files under these paths, in bytes; 0 where it cannot be known."""
    total = 0
    for path in paths:
        if not os.path.exists(path):
            return 0
        inside = [
            os.path.join(folder, name) for folder, _, names in os.walk(path) for name in names
        ]
        total += sum(os.path.getsize(file) for file in inside or [path] if os.path.isfile(file))
    return total
