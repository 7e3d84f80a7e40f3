"""What a rank and its writer say to each other: one JSON line each way.

    rank -> writer   {"save": {…Save…}}
    writer -> rank   {"committed": {…}} | {"written": {…}} | {"failed": {…}}

Every save gets exactly one answer. Rank 0 hears `committed` when the folder has its name and is
on the disk; the others hear `written` when their files are, and learn the outcome from rank 0.
The bytes of tensors never pass through the pipe: a piece names a range of a memfd that the writer
inherited. From the request to the answer the rank must neither change nor shrink that range.
"""

from __future__ import annotations

import msgspec

from holdfast.analysis.checkpoints.manifest import FileEntry

PATIENCE = 120.0
"""NFS may hide a new file from another machine for 60 s (acdirmax): twice that."""


class FilePiece(msgspec.Struct, frozen=True, kw_only=True):
    """One file to write: a range of an inherited descriptor, or a text."""

    name: str
    fd: int = -1
    offset: int = 0
    """a multiple of 4096, or it is written through the page cache, which is slower"""
    size: int = 0
    text: str = ""
    """what to write when there is no descriptor (rank-N.json)"""


class CheckpointInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What rank 0 knows of the checkpoint as a whole; the fields are those of the manifest."""

    epoch: int = 0
    kind: str = "plain"
    structure: str = ""
    config: dict[str, str] = {}
    versions: dict[str, str] = {}
    data: str = "unknown"
    run: str = ""
    imported: str = ""
    per_rank: tuple[str, ...] = ()


class SaveOrder(msgspec.Struct, frozen=True, kw_only=True):
    """Write this rank's pieces; as rank 0 also wait for all others and commit."""

    folder: str
    """absolute, on a file system that all ranks share"""
    step: int
    token: str
    """hex, chosen by rank 0 for this save and sent to all: it names the temporary folder"""
    rank: int
    world_size: int
    pieces: tuple[FilePiece, ...]
    stall: float = 0.0
    threads: int = 1
    """that hash and write; some of them wait for the disk"""
    about: CheckpointInfo = CheckpointInfo()
    """read from rank 0 only, as are the fields below"""
    keep: int = 3
    keep_every: int | None = None
    """in steps: of every so many steps, the first checkpoint is kept for good"""
    lock: int = -1
    """rank 0: the inherited descriptor of the folder's lock; only with it does a writer finish a
    save whose rank is gone"""
    owner: str = ""
    """the token in the folder's lock while it is this job's; '' where that is not asked"""
    patience: float = PATIENCE
    """seconds without any sign from a rank whose part is missing"""


class PartWritten(msgspec.Struct, frozen=True, kw_only=True):
    step: int
    files: tuple[FileEntry, ...]
    seconds: float


class SaveCommitted(msgspec.Struct, frozen=True, kw_only=True):
    step: int
    path: str
    bytes: int
    stall: float
    """the longest of all ranks"""
    seconds: float
    not_removed: str = ""
    """why an old checkpoint that was to go is still there; '' when all is well"""
    made_room: tuple[str, ...] = ()
    """checkpoints that were removed before it, as the disk was full"""


class SaveFailure(msgspec.Struct, frozen=True, kw_only=True):
    """Nothing of the save is left; the one before is intact. Also what a rank leaves for rank 0."""

    step: int
    errno: int
    """0 when no system call failed"""
    what: str
    where: str
    made_room: tuple[str, ...] = ()
    """checkpoints that were removed for it, without success"""


class WriterRequest(msgspec.Struct, frozen=True):
    save: SaveOrder


class SaveAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """Exactly one of them."""

    committed: SaveCommitted | None = None
    written: PartWritten | None = None
    failed: SaveFailure | None = None
