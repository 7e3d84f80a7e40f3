"""A file of a save, written and hashed piece by piece, by several threads.

hashlib and pwrite let other threads run. A thread hashes a chunk and writes it: while one waits for
the disk, another one hashes.
"""

from __future__ import annotations

import hashlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Protocol

from holdfast.analysis.checkpoints.manifest import piece_ranges
from holdfast.checkpoint.files import OpenFile
from holdfast.checkpoint.parts import SaveControl

CHUNK = 16 << 20
"""bytes between two questions whether the save is still wanted"""


class FileSource(Protocol):
    """One file to write."""

    @property
    def name(self) -> str: ...
    @property
    def size(self) -> int: ...
    def view(self, start: int, end: int) -> memoryview:
        """Of these bytes; several threads ask."""
        ...


class _StoppedError(Exception):
    """Another thread has failed, and says why."""


def write_pieces(file: OpenFile, source: FileSource, control: SaveControl) -> tuple[str, ...]:
    """The digests of its pieces; raises what the first failed write or `check_wanted` raises."""
    ranges = piece_ranges(source.size, control.piece_size)
    if len(ranges) == 1 or control.threads == 1:
        return tuple(
            _write_piece(file, source, start, end, control.check_wanted) for start, end in ranges
        )
    lock, failed = threading.Lock(), threading.Event()

    def check_wanted() -> None:
        if failed.is_set():
            raise _StoppedError
        with lock:  # it polls descriptors, which only one thread may
            control.check_wanted()

    def write(piece: tuple[int, int]) -> str:
        try:
            return _write_piece(file, source, *piece, check_wanted)
        except BaseException:
            failed.set()
            raise

    with ThreadPoolExecutor(control.threads, "holdfast-write") as pool:
        pieces = [pool.submit(write, piece) for piece in ranges]
    problems = [problem for piece in pieces if (problem := piece.exception())]
    if problems:
        raise next((each for each in problems if not isinstance(each, _StoppedError)), problems[0])
    return tuple(piece.result() for piece in pieces)


def _write_piece(
    file: OpenFile, source: FileSource, start: int, end: int, check_wanted: Callable[[], None]
) -> str:
    digest = hashlib.sha256()
    for at in range(start, end, CHUNK):
        check_wanted()
        chunk = source.view(at, min(at + CHUNK, end))
        digest.update(chunk)
        file.write(chunk, at)
    return digest.hexdigest()
