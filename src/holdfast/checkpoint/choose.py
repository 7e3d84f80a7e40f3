"""Which checkpoint to resume from: the newest that verifies. Damaged ones are set aside.

    for candidate in candidates(folder):              # newest first; cheap, reads manifests
        problem = candidate.problem or verify(candidate.path, candidate.manifest.files)
        if problem is None: break                     # this one
        aside = set_aside(candidate.path, problem)    # aside.moved, aside.path: to be printed

Nothing here raises for what is on the disk.
"""

from __future__ import annotations

import contextlib
import os
from collections import Counter
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.analysis.checkpoints.manifest import (
    DAMAGED,
    MANIFEST,
    SCHEMA,
    SCHEMAS,
    WHY,
    FileEntry,
    Manifest,
    decode,
    is_file_name,
    order_of,
    sealed_schema,
    step_of,
)
from holdfast.checkpoint import verify as verifying
from holdfast.checkpoint.files import DISK, Files, NotRegularError, read
from holdfast.checkpoint.removal import free_name
from holdfast.checkpoint.verify import BytesTaker

LARGEST_MANIFEST = 256 << 20
"""bytes: far beyond that of 10,000 ranks"""
_GONE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class CheckpointProblem(msgspec.Struct, frozen=True):
    """Why a checkpoint is not chosen."""

    why: str
    kind: Literal["missing", "changed", "unreadable", "newer"] = "changed"
    """'missing': a file is not there; 'unreadable' says nothing about the bytes (no permission, too
    many open files, a server that does not answer), nor does 'newer' (a later format): such a
    checkpoint is neither called damaged nor moved"""
    file: str = MANIFEST
    """the one that has the problem"""

    @property
    def is_damage(self) -> bool:
        return self.kind in ("missing", "changed")

    def __str__(self) -> str:
        return self.why


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    step: int
    manifest: Manifest | None
    """None only with a problem"""
    problem: CheckpointProblem | None = None


class SetAsideResult(msgspec.Struct, frozen=True):
    path: str
    """where it is now"""
    moved: bool
    why_not: str = ""


def committed(folder: str, files: Files = DISK) -> list[str]:
    """The paths of all committed folders, newest first; [] when there is none, or no folder at all.

    Raises OSError if the folder is there but cannot be listed: that is not 'no checkpoint'.
    """
    try:
        names = files.listdir(folder)
    except FileNotFoundError:
        return []
    orders = {order: name for name in names if (order := order_of(name))}
    return [os.path.join(folder, orders[order]) for order in sorted(orders)[::-1]]


def candidates(folder: str, files: Files = DISK) -> list[Candidate]:
    """What is in each of them, at a first look."""
    return [inspect(path, files) for path in committed(folder, files)]


def inspect(path: str, files: Files = DISK) -> Candidate:
    """The manifest, and whether all files are there in the right size; no digests."""
    found = first_look(path, files)
    if found.problem or found.manifest is None:
        return found
    problem = _wrong_size(path, found.manifest.files, files)
    return msgspec.structs.replace(
        found, problem=problem or _unlisted_file(path, found.manifest, files)
    )


def first_look(path: str, files: Files = DISK) -> Candidate:
    """The manifest alone: of thousands of ranks not each may ask for the size of every file."""
    named = step_of(os.path.basename(path))  # None: a copy of one, under a name of the user's
    manifest = _manifest(path, files)
    if isinstance(manifest, CheckpointProblem):
        return Candidate(path=path, step=named or 0, manifest=None, problem=manifest)
    step = manifest.step if named is None else named
    problem = _contradiction(manifest, step)
    return Candidate(path=path, step=step, manifest=manifest, problem=problem)


def _manifest(path: str, files: Files) -> Manifest | CheckpointProblem:
    where, text = os.path.join(path, MANIFEST), b""
    try:
        if (size := files.size(where)) > LARGEST_MANIFEST:
            return CheckpointProblem(f"{MANIFEST} has {size} bytes")
        text = read(files, where)
        return decode(text)
    except OSError as error:
        return _unread(MANIFEST, error)
    except msgspec.DecodeError as error:
        schema = sealed_schema(text)
        if schema not in ("", *SCHEMAS):
            return _newer(schema)
        return CheckpointProblem(f"{MANIFEST} is damaged: {error}")


def verify(
    path: str,
    entries: Sequence[FileEntry],
    files: Files = DISK,
    *,
    rank: int = 0,
    world_size: int = 1,
    threads: int = 1,
    taker: BytesTaker | None = None,
) -> CheckpointProblem | None:
    """These files of a checkpoint, byte for byte, or this rank's share of them; sizes first.

    `taker` is given all bytes that it wants, those of other ranks' shares as well.
    """
    pieces = verifying.share(entries, rank, world_size)
    names = {piece.name for piece in pieces}
    if problem := _wrong_size(path, [one for one in entries if one.name in names], files):
        return problem
    others = verifying.not_mine(entries, pieces, taker) if taker is not None else ()
    wrong = verifying.first_wrong(path, pieces, files, threads=threads, taker=taker, others=others)
    if wrong is None:
        return None
    if wrong.error is not None:
        return _unread(wrong.name, wrong.error)
    return CheckpointProblem(f"the bytes of {wrong.name} have changed", file=wrong.name)


def set_aside(path: str, problem: CheckpointProblem, files: Files = DISK) -> SetAsideResult:
    """Into damaged/, under a name that is free; where that cannot be, it stays where it is."""
    if not problem.is_damage:
        return SetAsideResult(path, moved=False, why_not="it could not be read, but may be intact")
    root, name = os.path.split(path)
    aside = os.path.join(root, DAMAGED)
    try:
        files.make_folder(aside)
        # Through a link it would land elsewhere, and so would the note of a linked checkpoint.
        if links := [one for one in (path, aside) if not files.is_folder(one)]:
            return SetAsideResult(path, moved=False, why_not=f"{links[0]} is a link")
        target = free_name(files, os.path.join(aside, name))
        files.rename(path, target)
    except OSError as error:
        return SetAsideResult(path, moved=False, why_not=f"{error.strerror}: {error.filename}")
    with contextlib.suppress(OSError):  # a full disk: the reason was also printed
        note = files.create(os.path.join(target, WHY))
        try:
            note.write(memoryview(f"{problem.why}\n".encode(errors="replace")))
        finally:
            note.close()
    return SetAsideResult(target, moved=True)


def _contradiction(manifest: Manifest, step: int) -> CheckpointProblem | None:
    if manifest.schema not in SCHEMAS:
        return _newer(manifest.schema)
    if manifest.step != step:
        return CheckpointProblem(
            f"its folder says step {step}, its manifest says step {manifest.step}"
        )
    counts = Counter(entry.name for entry in manifest.files)
    odd = [name for name, count in counts.items() if not is_file_name(name) or count > 1]
    return CheckpointProblem(f"its manifest names a file {odd[0]!r}") if odd else None


def _wrong_size(path: str, entries: Sequence[FileEntry], files: Files) -> CheckpointProblem | None:
    for entry in entries:
        try:
            size = files.size(os.path.join(path, entry.name))
        except OSError as error:
            return _unread(entry.name, error)
        if size != entry.size:
            why = f"{entry.name} has {size} bytes instead of {entry.size}"
            return CheckpointProblem(why, file=entry.name)
    return None


def _unlisted_file(path: str, manifest: Manifest, files: Files) -> CheckpointProblem | None:
    """A file of a rank that the manifest does not list; a user's notes in the folder are fine."""
    known = {entry.name for entry in manifest.files}
    try:
        names = files.listdir(path)
    except OSError as error:
        return _unread("the folder", error)
    strange = [name for name in names if name.startswith("rank-") and name not in known]
    if not strange:
        return None
    return CheckpointProblem(f"{strange[0]} is not in the manifest", file=strange[0])


def _unread(name: str, error: OSError) -> CheckpointProblem:
    if isinstance(error, _GONE):
        return CheckpointProblem(f"{name} is missing", "missing", name)
    if isinstance(error, NotRegularError):
        return CheckpointProblem(f"{name} is not a regular file", "changed", name)
    return CheckpointProblem(f"cannot be read now: {name}: {error.strerror}", "unreadable", name)


def _newer(schema: str) -> CheckpointProblem:
    why = f"its format is {schema!r:.60}, this holdfast reads {SCHEMA!r}"
    return CheckpointProblem(f"written by a newer holdfast: {why}", "newer")
