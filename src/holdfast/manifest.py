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
      damaged/step-000001100/  set aside, with why.txt
"""

from __future__ import annotations

import re

import msgspec

SCHEMA = "holdfast/checkpoint/1"
MANIFEST = "manifest.json"
DAMAGED = "damaged"
WHY = "why.txt"

_NAME = re.compile(r"step-([0-9]{9,})")
_TEMPORARY = re.compile(r"\.tmp-step-([0-9]{9,})-([0-9a-f]+)")


class FileEntry(msgspec.Struct, frozen=True, kw_only=True):
    """One file of a checkpoint."""

    name: str
    size: int
    sha256: str


class Part(msgspec.Struct, frozen=True, kw_only=True):
    """What one rank has written, told to the one that commits; a file in the temporary folder."""

    rank: int
    files: tuple[FileEntry, ...]
    stall: float
    """seconds the training stood still on this rank for the copy"""
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
    """fingerprint of the names, shapes and types of all tensors of model and optimizer"""
    config: dict[str, str]
    """what the user calls the configuration, and what we know of it, each value as text"""
    versions: dict[str, str]
    """holdfast, torch, python, cuda, numpy…"""
    data: str
    """'global' when the place in the data holds for any world size, 'per-rank', or 'unknown'"""
    run: str
    """id of the holdfast run, or ''"""
    stall: float = 0.0
    seconds: float = 0.0


def folder_name(step: int) -> str:
    return f"step-{step:09d}"


def temporary_name(step: int, token: str) -> str:
    return f".tmp-{folder_name(step)}-{token}"


def step_of(name: str) -> int | None:
    """The step of a committed checkpoint's folder; None for any other name."""
    found = _NAME.fullmatch(name)
    return int(found[1]) if found else None


def step_of_temporary(name: str) -> int | None:
    found = _TEMPORARY.fullmatch(name)
    return int(found[1]) if found else None


def encode(manifest: Manifest) -> bytes:
    return msgspec.json.format(msgspec.json.encode(manifest), indent=1) + b"\n"


def decode(text: bytes) -> Manifest:
    """Raises msgspec.DecodeError (also for a wrong type) on anything but a manifest."""
    return msgspec.json.decode(text, type=Manifest)
