"""The bytes of a checkpoint beside its digests: shared among ranks, hashed by several threads.

What is going to be loaded into new memory is copied there from the bytes that are hashed, and so
are bytes that another rank hashes, in between. The rest is in the page cache afterwards: ranks load
through it, and those of one machine share it. Each byte comes from the disk once, by the first
reader.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple, Protocol

from holdfast.analysis.checkpoints.manifest import FileEntry, PieceDigest
from holdfast.checkpoint.files import Files


class WrongPiece(NamedTuple):
    name: str
    """of its file"""
    error: OSError | None
    """why it could not be read; None when its bytes are others than were written"""


class BytesTaker(Protocol):
    """Wants bytes as they are read; several threads give them."""

    def wants(self, piece: PieceDigest) -> bool: ...
    def take(self, name: str, at: int, chunk: memoryview) -> None:
        """Those of a file from `at` on."""
        ...


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


def not_mine(
    entries: Iterable[FileEntry], mine: Sequence[PieceDigest], taker: BytesTaker
) -> list[PieceDigest]:
    """What is wanted of the pieces that other ranks verify; first those behind this rank's, so
    that not all ranks read at the same place."""
    own = set(mine)
    wanted = [
        piece
        for entry in entries
        if taker.wants(PieceDigest(entry.name, 0, entry.size, ""))
        for piece in entry.pieces()
        if piece in own or taker.wants(piece)
    ]
    last = max((number for number, piece in enumerate(wanted) if piece in own), default=-1)
    return [piece for piece in wanted[last + 1 :] + wanted[: last + 1] if piece not in own]


def _owner(at: int, total: int, world_size: int) -> int:
    return min(at * world_size // total, world_size - 1) if total else 0


def first_wrong(
    path: str,
    pieces: Sequence[PieceDigest],
    files: Files,
    *,
    threads: int = 1,
    taker: BytesTaker | None = None,
    others: Sequence[PieceDigest] = (),
) -> WrongPiece | None:
    """The first of these pieces that is not as it was written; None when all are.

    `others` are verified by other ranks: they are only read, for the taker.
    """
    found = threading.Event()

    def look(work: tuple[PieceDigest, bool]) -> WrongPiece | None:
        piece, is_mine = work
        if found.is_set():
            return None
        wrong = _wrong(path, piece, files, taker, verify=is_mine)
        if wrong and is_mine:
            found.set()
            return wrong
        return None  # whether another rank's piece can be read is that rank's to say

    work = in_turns(pieces, others)
    if threads == 1 or len(work) < 2:
        return next((wrong for each in work if (wrong := look(each))), None)
    with ThreadPoolExecutor(threads, "holdfast-verify") as pool:
        return next((wrong for wrong in pool.map(look, work) if wrong), None)


def in_turns(
    mine: Sequence[PieceDigest], others: Sequence[PieceDigest]
) -> list[tuple[PieceDigest, bool]]:
    """(piece, is it mine), both kinds evenly: while the disk is waited for, all cores are used."""
    order = [(number / len(mine), piece, True) for number, piece in enumerate(mine)]
    order += [(number / len(others), piece, False) for number, piece in enumerate(others)]
    return [(piece, is_mine) for _, piece, is_mine in sorted(order, key=lambda each: each[0])]


def _wrong(
    path: str, piece: PieceDigest, files: Files, taker: BytesTaker | None, *, verify: bool
) -> WrongPiece | None:
    if taker is not None and not taker.wants(piece):
        taker = None
    digest, at = hashlib.sha256(), piece.start
    try:
        for chunk in files.chunks(os.path.join(path, piece.name), piece.start, piece.end):
            if verify:
                digest.update(chunk)
            if taker is not None:
                taker.take(piece.name, at, chunk)
            at += len(chunk)
    except OSError as error:
        return WrongPiece(piece.name, error)
    is_right = not verify or digest.hexdigest() == piece.sha256
    return None if is_right else WrongPiece(piece.name, None)
