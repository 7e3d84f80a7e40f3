"""While a rank writes, rank 0 can see that it lives: a small file that grows.

The sizes of its other files may stay the same for minutes, in an fsync of what a slow disk took
into its cache. A disk that does not move at all for half an hour is given no more signs.
"""

from __future__ import annotations

import contextlib
import os
import re
import threading
import time
from collections.abc import Callable
from types import TracebackType

from holdfast.checkpoint.files import Files, OpenFile

EVERY = 2.0
"""seconds between two signs; a save that is written in less leaves none"""
LONGEST = 1800.0
"""seconds without a byte written, after which there are no more signs"""


def is_sign(name: str) -> bool:
    return re.fullmatch(r"\.alive-[0-9]+", name) is not None


class SignOfLife:
    def __init__(self, files: Files, folder: str, rank: int) -> None:
        self._files, self._path = files, os.path.join(folder, f".alive-{rank}")
        self._moved = time.monotonic()
        self._done = threading.Event()
        self._file: OpenFile | None = None
        self._thread = threading.Thread(target=self._beat, name="holdfast-alive", daemon=True)

    def noting(self, check: Callable[[], None]) -> Callable[[], None]:
        """`check`, which is called between two pieces."""

        def check_and_note() -> None:
            self._moved = time.monotonic()
            check()

        return check_and_note

    def __enter__(self) -> SignOfLife:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, _: object, __: TracebackType | None
    ) -> None:
        self._done.set()
        self._thread.join()
        if self._file is not None:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(FileNotFoundError):
                self._files.remove(self._path)

    def _beat(self) -> None:
        count = 0
        while not self._done.wait(EVERY) and time.monotonic() - self._moved < LONGEST:
            # A full disk, or rank 0 gave up: the writing itself will say so.
            with contextlib.suppress(OSError):
                if self._file is None:
                    self._file = self._files.create(self._path)
                self._file.write(memoryview(b"."), count)
                count += 1
