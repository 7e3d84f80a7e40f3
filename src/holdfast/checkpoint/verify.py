"""The bytes of a checkpoint beside its digests: shared among ranks, hashed by several threads.

What a rank verifies is in the page cache afterwards. Ranks load through it, and those of one
machine share it: each byte comes from the disk once, by the first reader.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

from holdfast.analysis.checkpoints.manifest import FileEntry, PieceDigest
from holdfast.checkpoint.files import Files


class WrongPiece(NamedTuple):
    name: str
    """of its file"""
    error: OSError | None
    """why it could not be read; None when its bytes are others than were written"""


def share(entries: Iterable[FileEntry], rank: int, world_size: int) -> tuple[PieceDigest, ...]:
    """The pieces that this rank verifies: every piece once, about as many bytes for each rank.

    Neighbours stay together, so that each rank of a sharded state reads mostly its own file, which
    it is going to load.
    """
    entries = tuple(entries)
    total = sum(entry.size for entry in entries)
    mine, before = [], 0
    for entry in entries:
        if _owner(before + entry.size, total, world_size) >= rank:
            for piece in entry.pieces():
                middle = before + (piece.start + piece.end) // 2
                if _owner(middle, total, world_size) == rank:
                    mine.append(piece)
        before += entry.size
    return tuple(mine)


def _owner(at: int, total: int, world_size: int) -> int:
    return min(at * world_size // total, world_size - 1) if total else 0


def first_wrong(
    path: str, pieces: Sequence[PieceDigest], files: Files, *, threads: int = 1
) -> WrongPiece | None:
    """The first of these pieces that is not as it was written; None when all are."""
    if threads == 1 or len(pieces) < 2:
        return next((wrong for piece in pieces if (wrong := _wrong(path, piece, files))), None)
    found = threading.Event()

    def look(piece: PieceDigest) -> WrongPiece | None:
        if found.is_set():
            return None
        wrong = _wrong(path, piece, files)
        if wrong:
            found.set()
        return wrong

    with ThreadPoolExecutor(threads, "holdfast-verify") as pool:
        return next((wrong for wrong in pool.map(look, pieces) if wrong), None)


def _wrong(path: str, piece: PieceDigest, files: Files) -> WrongPiece | None:
    digest = hashlib.sha256()
    try:
        for chunk in files.chunks(os.path.join(path, piece.name), piece.start, piece.end):
            digest.update(chunk)
    except OSError as error:
        return WrongPiece(piece.name, error)
    return None if digest.hexdigest() == piece.sha256 else WrongPiece(piece.name, None)
