"""A save without a copy: where memory is short the rank itself writes, and training waits."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Sequence
from dataclasses import dataclass

import msgspec

from holdfast.analysis.checkpoints.manifest import FileEntry, RankPart
from holdfast.checkpoint import commit, one_save
from holdfast.checkpoint.commit import Room, SaveControl, SaveFolder
from holdfast.checkpoint.files import DISK
from holdfast.checkpoint.messages import SaveAnswer, SaveOrder
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
    control = SaveControl()
    tree, file = TextFile(tree_file(asked.rank), text), tensor_file(asked.rank)

    def write(place: SaveFolder, room: Room) -> RankPart:
        began = control.clock()
        part = commit.write_part(
            DISK, place, asked.rank, [tree], stall=0.0, control=control, room=room
        )
        entries = part.files
        if tensors:
            path = os.path.join(place.temporary, file)
            entries = (commit.with_room(room, lambda: _write_again(path, tensors)), *entries)
            DISK.fsync_folder(place.temporary)
        seconds = control.clock() - began
        return msgspec.structs.replace(part, files=entries, stall=seconds, seconds=seconds)

    return one_save.carry_out(asked, [tree.name, file], write, control)


def _write_again(path: str, tensors: Sequence[NamedTensor]) -> FileEntry:
    """What an earlier try left is room as well."""
    with contextlib.suppress(FileNotFoundError):
        DISK.remove(path)
    return write_directly(path, tensors)
