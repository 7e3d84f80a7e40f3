"""A save without a copy: where memory is short the rank itself writes, and training waits."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import msgspec

from holdfast.analysis.checkpoints.manifest import Part
from holdfast.checkpoint import commit
from holdfast.checkpoint.commit import Place, SaveError, Watch
from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.messages import Answer, Committed, Failed, Save, Written
from holdfast.checkpoint.staging import tensor_file, tree_file, write_directly
from holdfast.checkpoint.tensors import Named


@dataclass(frozen=True)
class Text:
    """A file that is a few bytes in memory, as commit.py wants it."""

    name: str
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body)

    def chunks(self) -> Iterator[memoryview]:
        yield memoryview(self.body)


def save(asked: Save, text: bytes, tensors: Sequence[Named]) -> Answer:
    """What the writer would do with `asked`, here and now; its answer."""
    place = Place(asked.folder, asked.step, asked.token)
    names = [tree_file(asked.rank), tensor_file(asked.rank)]
    try:
        part = _write(asked, place, text, tensors)
        if asked.rank != 0:
            commit.hand_over(DISK, place, part)
            return Answer(written=Written(step=asked.step, files=part.files, seconds=part.seconds))
        return Answer(committed=_commit(asked, place, part))
    except (OSError, SaveError) as problem:
        failed = _failure(asked, problem)
    if asked.rank == 0:
        commit.abandon(DISK, place)
    else:
        commit.leave_failure(DISK, place, asked.rank, names, failed)
    return Answer(failed=failed)


def _write(asked: Save, place: Place, text: bytes, tensors: Sequence[Named]) -> Part:
    watch = Watch()
    began = watch.clock()
    tree = Text(tree_file(asked.rank), text)
    part = commit.write_part(DISK, place, asked.rank, [tree], stall=0.0, watch=watch)
    entries = part.files
    if tensors:
        entry = write_directly(os.path.join(place.temporary, tensor_file(asked.rank)), tensors)
        DISK.fsync_folder(place.temporary)
        entries = (entry, *entries)
    seconds = watch.clock() - began
    return msgspec.structs.replace(part, files=entries, stall=seconds, seconds=seconds)


def _commit(asked: Save, place: Place, part: Part) -> Committed:
    path, manifest = commit.commit(DISK, place, part, asked, Watch())
    problem = commit.retain(
        DISK,
        asked.folder,
        keep=asked.keep,
        keep_every=asked.keep_every,
        newest=path,
        token=asked.token,
    )
    return Committed(
        step=asked.step,
        path=path,
        bytes=sum(entry.size for entry in manifest.files),
        stall=manifest.stall,
        seconds=manifest.seconds,
        not_removed=problem,
    )


def _failure(asked: Save, problem: OSError | SaveError) -> Failed:
    if isinstance(problem, SaveError):
        return Failed(step=asked.step, errno=problem.number, what=problem.what, where=problem.where)
    return Failed(
        step=asked.step,
        errno=problem.errno or 0,
        what=problem.strerror or str(problem),
        where=str(problem.filename or asked.folder),
    )
