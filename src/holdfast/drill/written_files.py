"""Every file that a job wrote while it ran, each state of it: a script may write over its only
checkpoint, or keep no more than two."""

from __future__ import annotations

import time

from holdfast.drill.layout import JobFolder

SHARE = 0.05
"""of the time may go into looking: a folder with many files is looked at less often"""


class WrittenFiles:
    def __init__(self, folder: JobFolder) -> None:
        self._folder = folder
        self._sizes: dict[tuple[str, float], int] = {}
        self._next = 0.0

    def look(self) -> None:
        began = time.monotonic()
        if began < self._next:
            return
        for path, size, changed in self._folder.listing():
            self._sizes[path, changed] = size
        self._next = began + (time.monotonic() - began) / SHARE

    def listing(self) -> tuple[tuple[str, int, float], ...]:
        """As that of a folder, with a line for each state that was seen of a file."""
        self._next = 0.0
        self.look()
        return tuple((path, size, changed) for (path, changed), size in sorted(self._sizes.items()))
