"""Every byte of a checkpoint against its digests: piece by piece, by several threads. No torch."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import msgspec

from holdfast.analysis.checkpoints.manifest import Manifest, PieceDigest
from holdfast.checkpoint.cores import disk_threads
from holdfast.checkpoint.files import DISK


class DamagedPiece(msgspec.Struct, frozen=True, kw_only=True):
    """What is wrong, and where in which file."""

    file: str
    """'' for the checkpoint as a whole"""
    start: int = 0
    end: int = 0
    why: str


class Verification(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    step: int
    bytes: int
    """that were read"""
    damaged: tuple[DamagedPiece, ...]


def wrong_pieces(
    step_folder: str, manifest: Manifest, progress: Callable[[int], None] = lambda _: None
) -> list[DamagedPiece]:
    """All of them, also after the first."""

    def look(piece: PieceDigest) -> DamagedPiece | None:
        digest = hashlib.sha256()
        try:
            path = os.path.join(step_folder, piece.name)
            for chunk in DISK.chunks(path, piece.start, piece.end):
                digest.update(chunk)
        except OSError as error:
            return _damaged(piece, f"cannot be read: {error.strerror}")
        return None if digest.hexdigest() == piece.sha256 else _damaged(piece, "has changed")

    pieces = [piece for entry in manifest.files for piece in entry.pieces()]
    found: list[DamagedPiece] = []
    with ThreadPoolExecutor(disk_threads(1), "holdfast-verify") as pool:
        for piece, wrong in zip(pieces, pool.map(look, pieces), strict=True):
            found += [wrong] if wrong else []
            progress(piece.end - piece.start)
    return found


def _damaged(piece: PieceDigest, why: str) -> DamagedPiece:
    return DamagedPiece(file=piece.name, start=piece.start, end=piece.end, why=why)
