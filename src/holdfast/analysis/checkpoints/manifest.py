"""What a checkpoint of ours says of itself: its folder's names and its manifest. No I/O.

A checkpoint is a folder. It counts only with a manifest that names every file in it, with size
and digest; the manifest is written last, and the folder gets its name by one rename after that.

    ckpts/
      step-000001200/          a committed checkpoint
        manifest.json
        rank-0.safetensors     tensors of rank 0 (all of them for plain DDP)
        rank-0.json            the rest of rank 0's state, as a typed tree (checkpoint/tree.py)
        rank-1.safetensors …   what only rank 1 knows: its generators, its place in the data
      .tmp-step-000001300-1f0c9a/   being written, or left by a death; never chosen
      step-000001300.2/        step 1300 reached again, after a restart from an older one
      damaged/step-000001100/  set aside, with why.txt
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from typing import Any, NamedTuple

import msgspec

SCHEMA = "holdfast/checkpoint/2"
FIRST_SCHEMA = "holdfast/checkpoint/1"
"""one sha256 of each whole file; read as one piece"""
SCHEMAS = (FIRST_SCHEMA, SCHEMA)
PIECE_SIZE = 64 << 20
"""bytes: small enough for many threads and ranks to share a file, large enough that digests of
terabytes fit into a manifest"""
MANIFEST = "manifest.json"
DAMAGED = "damaged"
WHY = "why.txt"

_NAME = re.compile(r"step-([0-9]{9,18})(?:\.([1-9][0-9]{0,8}))?")
_TEMPORARY = re.compile(r"\.tmp-step-([0-9]{9,18})(?:\.[0-9]+)?-([0-9a-f]+)")
_FILE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
# The manifest's last line holds the digest of all its other bytes: a flipped bit in a size or a
# step would still be good JSON. It is taken with zeros in the digest's own place.
_SEAL = re.compile(rb'"sha256": "([0-9a-f]{64})"\n\}\n\Z')
_NO_SEAL = b'"sha256": "' + b"0" * 64 + b'"\n}\n'


class PieceDigest(NamedTuple):
    """A piece of a file, and the digest of its bytes."""

    name: str
    start: int
    end: int
    sha256: str


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint. Its digests are those of its pieces: the first `piece_size` bytes,
    the next, and so on; an empty file has one piece without bytes."""

    name: str
    size: int
    piece_size: int = PIECE_SIZE
    sha256: tuple[str, ...]

    def pieces(self) -> Iterator[PieceDigest]:
        ranges = piece_ranges(self.size, self.piece_size)
        for (start, end), sha256 in zip(ranges, self.sha256, strict=True):
            yield PieceDigest(self.name, start, end, sha256)


def piece_ranges(size: int, piece_size: int) -> list[tuple[int, int]]:
    """(start, end) of the pieces of a file to be written."""
    return [(at, min(at + piece_size, size)) for at in range(0, max(size, 1), piece_size)]


class RankPart(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has written, for the rank that commits; a file in the temporary folder."""

    rank: int
    files: tuple[FileEntry, ...]
    stall: float
    """seconds that training was paused on this rank for the copy"""
    seconds: float
    """seconds its writing took"""


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The last file written, and the first one read."""

    schema: str
    step: int
    epoch: int
    world_size: int
    kind: str
    """'plain': rank 0 wrote what all ranks share; 'sharded': every rank wrote its pieces"""
    saved_at: float
    """wall seconds"""
    files: tuple[FileEntry, ...]
    structure: str
    """fingerprint of the names, shapes and types of all tensors of model and optimizer that the
    ranks share"""
    config: dict[str, str]
    """what the user calls the configuration, and what we know of it, each value as text"""
    versions: dict[str, str]
    """holdfast, torch, python, cuda, numpy…"""
    data: str
    """'global' when the place in the data holds for any world size, 'per-rank', or 'unknown'"""
    run: str
    """id of the holdfast run, or ''"""
    per_rank: tuple[str, ...] = ()
    """'model', 'optimizer': every rank wrote its own, and no other number of ranks can load it"""
    keep_every: int = 0
    """in steps: of every so many, the first is kept for good; 0: none is"""
    imported: str = ""
    """what it was made from, where no job saved it; it holds what was found there, and no more"""
    stall: float = 0.0
    seconds: float = 0.0
    sha256: str = "0" * 64
    """of the manifest itself; filled in by `encode`, proven by `decode`. Stays the last field"""


def folder_name(step: int, again: int = 1) -> str:
    """`again` counts how often this step was reached: a committed folder is never written over."""
    return f"step-{step:09d}" + (f".{again}" if again > 1 else "")


def temporary_name(step: int, token: str) -> str:
    return f".tmp-{folder_name(step)}-{token}"


def order_of(name: str) -> tuple[int, int] | None:
    """(step, how often it was reached) of a committed folder, newest highest; else None."""
    found = _NAME.fullmatch(name)
    return (int(found[1]), int(found[2] or 1)) if found else None


def step_of(name: str) -> int | None:
    """The step of a committed checkpoint's folder; None for any other name."""
    order = order_of(name)
    return order[0] if order else None


def step_of_temporary(name: str) -> int | None:
    found = _TEMPORARY.fullmatch(name)
    return int(found[1]) if found else None


def is_file_name(name: str) -> bool:
    """A plain name: nothing that a manifest made by others could lead out of the folder with."""
    return _FILE.fullmatch(name) is not None


def encode(manifest: Manifest) -> bytes:
    unsealed = msgspec.structs.replace(manifest, sha256="0" * 64)
    text = msgspec.json.format(msgspec.json.encode(unsealed), indent=1) + b"\n"
    assert text.endswith(_NO_SEAL), "sha256 is the last field"
    return text[: -len(_NO_SEAL)] + _NO_SEAL.replace(b"0" * 64, _digest(text))


class _AnySchema(msgspec.Struct):
    schema: str = ""


def sealed_schema(text: bytes) -> str:
    """Of a manifest whose bytes are intact, whatever its other fields are; else ''."""
    try:
        _check_seal(text)
        return msgspec.json.decode(text, type=_AnySchema).schema
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return ""


def _check_seal(text: bytes) -> None:
    seal = _SEAL.search(text)
    if not seal:
        raise msgspec.DecodeError("it does not end as a manifest does")
    if _digest(text[: seal.start()] + _NO_SEAL) != seal[1]:
        raise msgspec.DecodeError("its bytes do not match its own sha256")


def decode(text: bytes) -> Manifest:
    """Raises msgspec.DecodeError (also for a wrong type) on anything but a whole manifest."""
    _check_seal(text)
    try:
        found = msgspec.json.decode(text)
        if isinstance(found, dict) and found.get("schema") == FIRST_SCHEMA:
            found["files"] = [_one_piece(each) for each in found.get("files", ())]
        manifest = msgspec.convert(found, Manifest)
    except (UnicodeDecodeError, RecursionError) as error:
        raise msgspec.DecodeError(str(error)) from error
    for entry in manifest.files:
        size, piece = entry.size, entry.piece_size
        if size < 0 or piece <= 0 or len(entry.sha256) != max(1, -(-size // piece)):
            raise msgspec.DecodeError(f"the digests of {entry.name!r:.80} do not match its size")
    return manifest


def _one_piece(entry: Any) -> Any:
    """An entry of the first format, as it would be written now."""
    if not isinstance(entry, dict) or not isinstance(entry.get("size"), int):
        return entry  # msgspec says what is wrong
    return {**entry, "piece_size": max(entry["size"], 1), "sha256": [entry.get("sha256")]}


def _digest(text: bytes) -> bytes:
    return hashlib.sha256(text).hexdigest().encode()
