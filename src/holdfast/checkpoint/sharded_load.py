"""Pieces on the disk -> the tensors of this rank, whatever ranks and mesh they came from.

DCP plans which part of which piece goes where. Its `load` would also gather the plans of all
ranks, only to hand them back unchanged: here every rank plans for itself and waits for nobody.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from typing import TYPE_CHECKING

import msgspec
import torch
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)

from holdfast.checkpoint.layout import CODES
from holdfast.checkpoint.reading import RankFiles, Tensors
from holdfast.checkpoint.sharded_plan import Index, Saved, piece_name
from holdfast.checkpoint.sharded_tree import Wanted, index_of
from holdfast.checkpoint.staging import tensor_file
from holdfast.checkpoint.tensors import Fetch, named_dtype
from holdfast.checkpoint.tree import DamagedTreeError
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import LoadPlan, ReadItem


def read_index(first: RankFiles) -> Index:
    """From what rank 0 wrote."""
    try:
        return msgspec.convert(index_of(first), Index)
    except msgspec.ValidationError as odd:
        raise DamagedTreeError(f"the saved state is damaged: {odd}") from odd


def load(folder: str, index: Index, wanted: Mapping[str, Wanted]) -> None:
    """Fills all tensors in place. All of it is planned before the first is touched."""
    for each in wanted.values():
        if each.saved not in index:
            raise DamagedTreeError(f"{each.saved!r:.80} is not in the index of the checkpoint")
    metadata = Metadata({name: _metadata(index[each.saved]) for name, each in wanted.items()})
    planner = DefaultLoadPlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner({name: each.tensor for name, each in wanted.items()}, metadata)
    try:
        plan = planner.create_local_plan()
    except ValueError as differs:  # another size; names and sizes were compared before
        raise ConfigError(f"the checkpoint does not fit this model: {differs}") from differs
    _refuse_gaps(plan, wanted)
    source = _Source(folder, index)
    for item in plan.items:
        into = planner.resolve_tensor(item)
        into.copy_(source.read(wanted[item.dest_index.fqn].saved, item))


def _metadata(saved: Saved) -> TensorStorageMetadata:
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=named_dtype(saved.dtype)),
        size=torch.Size(saved.size),
        chunks=[
            ChunkStorageMetadata(offsets=torch.Size(part.offsets), sizes=torch.Size(part.sizes))
            for part in saved.parts
        ],
    )


def _refuse_gaps(plan: LoadPlan, wanted: Mapping[str, Wanted]) -> None:
    """What no piece fills would keep the values of a fresh model, and nobody would see it."""
    filled = dict.fromkeys(wanted, 0)
    for item in plan.items:
        filled[item.dest_index.fqn] += math.prod(item.lengths)
    for name, each in wanted.items():
        local = each.tensor.to_local() if hasattr(each.tensor, "to_local") else each.tensor
        if filled[name] != local.numel():
            raise DamagedTreeError(f"the checkpoint does not hold all of {name}")


class _Source:
    """The files of all ranks, each opened when something in it is wanted."""

    def __init__(self, folder: str, index: Index) -> None:
        self._folder, self._index = folder, index
        self._files: dict[int, Tensors] = {}
        self._places = {
            (name, part.offsets): part.rank for name, saved in index.items() for part in saved.parts
        }

    def read(self, name: str, item: ReadItem) -> torch.Tensor:
        piece = self._piece(name, tuple(item.storage_index.offset or ()))
        ranges = zip(item.storage_offsets, item.lengths, strict=True)
        try:
            for axis, (start, length) in enumerate(ranges):
                piece = piece.narrow(axis, start, length)
        except (RuntimeError, IndexError) as odd:
            raise DamagedTreeError(f"a piece of {name} is not as large as it says: {odd}") from odd
        return piece

    def _piece(self, name: str, offsets: tuple[int, ...]) -> torch.Tensor:
        rank, saved = self._places[name, offsets], self._index[name]
        if rank not in self._files:
            self._files[rank] = Tensors(os.path.join(self._folder, tensor_file(rank)))
        sizes = next(part.sizes for part in saved.parts if part.offsets == offsets)
        body: dict[str, object] = {"name": piece_name(name, saved.size, offsets, sizes)}
        if saved.dtype not in CODES:  # it was written as bytes
            body |= {"dtype": saved.dtype, "shape": sizes}
        found = Fetch(self._files[rank].read, keep_mapped=True).decode("tensor", body)
        assert isinstance(found, torch.Tensor)
        return found
