"""Folders and what lies in them."""

from __future__ import annotations

from holdfast.facts.base import Fact


class Folder(Fact, frozen=True):
    path: str
    purpose: str
    """'checkpoints' or 'logs'"""
    exists: bool
    looked_at: str
    """the folder itself, or its nearest existing parent"""
    is_directory: bool
    filesystem: str
    read_only: bool
    size: int
    free: int
    """bytes this user may still write"""
    inodes: int
    inodes_free: int
    write_error: str
    """'' when an unnamed file could be made and filled, else the errno's name"""


class CheckpointItem(Fact, frozen=True):
    """One checkpoint, or what is left of one, in a checkpoint folder."""

    path: str
    kind: str
    """'holdfast', 'torch-file', 'safetensors', 'dcp-folder' or 'temporary'"""
    size: int
    age: float
    problem: str
    """'' when its structure is whole, else what is wrong"""
    step: int | None = None
    """this and all below only where it says so itself: our own do, others tell nothing"""
    world_size: int | None = None
    saved_at: float | None = None
    """wall seconds"""
    seconds: float | None = None
    """how long its writing took"""
    config: str = ""
    """a short digest of the configuration it was saved under; '' when it tells none"""
    data: str = ""
    """'global' when its place in the data holds for any world size, 'per-rank', 'unknown'"""
    files: int = 1
    """how many files it is made of"""


class RendezvousFile(Fact, frozen=True):
    """A file:// store named by the environment."""

    variable: str
    path: str
    exists: bool
    size: int
    age: float
    held_by: tuple[int, ...]
