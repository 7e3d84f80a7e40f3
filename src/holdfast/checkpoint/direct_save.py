"""A save without a copy: where memory is short the rank itself writes, and training waits."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.analysis.checkpoints.manifest import RankPart
from holdfast.checkpoint import commit
from holdfast.checkpoint.commit import SaveControl, SaveError, SaveFolder
from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.messages import (
    PartWritten,
    SaveAnswer,
    SaveCommitted,
    SaveFailure,
    SaveOrder,
)
from holdfast.checkpoint.staging import tensor_file, tree_file, write_directly
from holdfast.checkpoint.tensors import NamedTensor


@dataclass(frozen=True)
class TextFile:
    """A file that is a few bytes in memory, as commit.py wants it."""

    name: str
    body: bytes

    @property
    def size(self) -> int:
        return len(self.body)

    def view(self, start: int, end: int) -> memoryview:
        return memoryview(self.body)[start:end]


def save(asked: SaveOrder, text: bytes, tensors: Sequence[NamedTensor]) -> SaveAnswer:
    """What the writer would do with `asked`, here and now; its answer."""
    place = SaveFolder(asked.folder, asked.step, asked.token)
    names = [tree_file(asked.rank), tensor_file(asked.rank)]
    try:
        part = _write(asked, place, text, tensors)
        if asked.rank != 0:
            commit.hand_over(DISK, place, part)
            return SaveAnswer(
                written=PartWritten(step=asked.step, files=part.files, seconds=part.seconds)
            )
        return SaveAnswer(committed=_commit(asked, place, part))
    except (OSError, SaveError) as problem:
        failed = _failure(asked, problem)
    if asked.rank == 0:
        commit.abandon(DISK, place)
    else:
        commit.leave_failure(DISK, place, asked.rank, names, failed)
    return SaveAnswer(failed=failed)


def _write(
    asked: SaveOrder, place: SaveFolder, text: bytes, tensors: Sequence[NamedTensor]
) -> RankPart:
    control = SaveControl()
    began = control.clock()
    tree = TextFile(tree_file(asked.rank), text)
    part = commit.write_part(DISK, place, asked.rank, [tree], stall=0.0, control=control)
    entries = part.files
    if tensors:
        entry = write_directly(os.path.join(place.temporary, tensor_file(asked.rank)), tensors)
        DISK.fsync_folder(place.temporary)
        entries = (entry, *entries)
    seconds = control.clock() - began
    return msgspec.structs.replace(part, files=entries, stall=seconds, seconds=seconds)


def _commit(asked: SaveOrder, place: SaveFolder, part: RankPart) -> SaveCommitted:
    path, manifest = commit.commit(DISK, place, part, asked, SaveControl())
    problem = commit.retain(
        DISK,
        asked.folder,
        keep=asked.keep,
        keep_every=asked.keep_every,
        newest=path,
        token=asked.token,
    )
    return SaveCommitted(
        step=asked.step,
        path=path,
        bytes=sum(entry.size for entry in manifest.files),
        stall=manifest.stall,
        seconds=manifest.seconds,
        not_removed=problem,
    )


def _failure(asked: SaveOrder, problem: OSError | SaveError) -> SaveFailure:
    if isinstance(problem, SaveError):
        return SaveFailure(
            step=asked.step, errno=problem.number, what=problem.what, where=problem.where
        )
    return SaveFailure(
        step=asked.step,
        errno=problem.errno or 0,
        what=problem.strerror or str(problem),
        where=str(problem.filename or asked.folder),
    )
