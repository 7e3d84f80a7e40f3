"""Which checkpoint counts: the newest that verifies. What does not is set aside, with the reason.

    for candidate in candidates(folder):              # newest first; cheap, reads manifests
        problem = candidate.problem or verify(candidate.path, candidate.manifest.files)
        if not problem: break                         # this one
        aside = set_aside(candidate.path, problem)    # aside.moved, aside.path: to be said

A problem is a sentence, '' when there is none. Nothing here raises for what lies on the disk.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
from collections.abc import Sequence

import msgspec

from holdfast.analysis.checkpoints.manifest import (
    DAMAGED,
    MANIFEST,
    SCHEMA,
    WHY,
    FileEntry,
    Manifest,
    decode,
    is_file_name,
    order_of,
    step_of,
)
from holdfast.checkpoint.files import DISK, Files, read

# Begins a problem that says nothing about the bytes: no permission, too many open files, a server
# that is away. Such a checkpoint is not chosen, but neither is it called damaged and moved.
UNREADABLE = "cannot be read now: "
_GONE = (FileNotFoundError, NotADirectoryError, IsADirectoryError)


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    path: str
    step: int
    manifest: Manifest | None
    """None only with a problem"""
    problem: str = ""


class Aside(msgspec.Struct, frozen=True):
    path: str
    """where it lies now"""
    moved: bool
    why_not: str = ""


def candidates(folder: str, files: Files = DISK) -> list[Candidate]:
    """Every committed folder, newest first; [] when there is none, or no folder at all.

    Raises OSError if the folder is there but cannot be listed: that is not 'no checkpoint'.
    """
    try:
        names = files.listdir(folder)
    except FileNotFoundError:
        return []
    orders = {order: name for name in names if (order := order_of(name))}
    return [inspect(os.path.join(folder, orders[order]), files) for order in sorted(orders)[::-1]]


def inspect(path: str, files: Files = DISK) -> Candidate:
    """The manifest, and whether all files are there in the right size; no digests."""
    step = step_of(os.path.basename(path)) or 0
    try:
        manifest = decode(read(files, os.path.join(path, MANIFEST)))
    except _GONE:
        return Candidate(path=path, step=step, manifest=None, problem=f"{MANIFEST} is missing")
    except msgspec.DecodeError as error:
        problem = f"{MANIFEST} is damaged: {error}"
        return Candidate(path=path, step=step, manifest=None, problem=problem)
    except OSError as error:
        problem = _unread(MANIFEST, error)
        return Candidate(path=path, step=step, manifest=None, problem=problem)
    problem = _wrong_in(manifest, step) or _sizes(path, manifest.files, files)
    return Candidate(
        path=path,
        step=step,
        manifest=manifest,
        problem=problem or _strangers(path, manifest, files),
    )


def verify(path: str, entries: Sequence[FileEntry], files: Files = DISK) -> str:
    """These files of a checkpoint, byte for byte; all sizes before any digest."""
    return _sizes(path, entries, files) or next(
        (problem for entry in entries if (problem := _digest(path, entry, files))), ""
    )


def share(entries: Sequence[FileEntry], rank: int, world_size: int) -> tuple[FileEntry, ...]:
    """The files that this rank verifies: every file once, the big ones spread out."""
    loads = [0] * world_size
    mine = []
    for entry in sorted(entries, key=lambda entry: (-entry.size, entry.name)):
        least = loads.index(min(loads))
        loads[least] += entry.size + 1
        if least == rank:
            mine.append(entry)
    return tuple(mine)


def set_aside(path: str, why: str, files: Files = DISK) -> Aside:
    """Into damaged/, under a name that is free; where that cannot be, it stays where it is."""
    if why.startswith(UNREADABLE):
        return Aside(path, moved=False, why_not="it may be whole: it only could not be read")
    root, name = os.path.split(path)
    aside = os.path.join(root, DAMAGED)
    try:
        files.make_folder(aside)
        target = _free(files, os.path.join(aside, name))
        files.rename(path, target)
    except OSError as error:
        return Aside(path, moved=False, why_not=f"{error.strerror}: {error.filename}")
    with contextlib.suppress(OSError):  # a full disk: the reason was also said on the screen
        note = files.create(os.path.join(target, WHY))
        try:
            note.write(memoryview(f"{why}\n".encode(errors="replace")))
        finally:
            note.close()
    return Aside(target, moved=True)


def _wrong_in(manifest: Manifest, step: int) -> str:
    if manifest.schema != SCHEMA:
        return f"{UNREADABLE}its format is {manifest.schema!r}, this holdfast reads {SCHEMA!r}"
    if manifest.step != step:
        return f"its folder says step {step}, its manifest says step {manifest.step}"
    names = [entry.name for entry in manifest.files]
    odd = [name for name in names if not is_file_name(name) or names.count(name) > 1]
    return f"its manifest names a file {odd[0]!r}" if odd else ""


def _sizes(path: str, entries: Sequence[FileEntry], files: Files) -> str:
    for entry in entries:
        try:
            size = files.size(os.path.join(path, entry.name))
        except _GONE:
            return f"{entry.name} is missing"
        except OSError as error:
            return _unread(entry.name, error)
        if size != entry.size:
            return f"{entry.name} has {size} bytes instead of {entry.size}"
    return ""


def _strangers(path: str, manifest: Manifest, files: Files) -> str:
    """A file of a rank that the manifest does not know; a user's notes in the folder are fine."""
    known = {entry.name for entry in manifest.files}
    try:
        names = files.listdir(path)
    except OSError as error:
        return _unread("the folder", error)
    strange = [name for name in names if name.startswith("rank-") and name not in known]
    return f"{strange[0]} is not in the manifest" if strange else ""


def _digest(path: str, entry: FileEntry, files: Files) -> str:
    sha256 = hashlib.sha256()
    try:
        for chunk in files.chunks(os.path.join(path, entry.name)):
            sha256.update(chunk)
    except _GONE:
        return f"{entry.name} is missing"
    except OSError as error:
        return _unread(entry.name, error)
    return "" if sha256.hexdigest() == entry.sha256 else f"the bytes of {entry.name} have changed"


def _unread(name: str, error: OSError) -> str:
    return f"{UNREADABLE}{name}: {error.strerror}"


def _free(files: Files, path: str) -> str:
    count, target = 1, path
    while files.exists(target):
        count += 1
        target = f"{path}.{count}"
    return target
