"""State of which each rank holds a part: FSDP2, tensor parallel, any mesh of DTensors.

    sharded = Sharded(model, optimizer, board)      where State.kind is "sharded"
    share = sharded.collect(token)                  all ranks, at the announced step
    captured = state.capture(rank, sharded=share.node)
    buffer.stage([*captured.tensors, *share.tensors], captured.text)

    sharded.restore(folder, saved_world)            all ranks, before state.restore(…)

Each rank writes its pieces into its own `rank-N.safetensors`. What is where is planned by
torch.distributed.checkpoint, so another number of ranks, or another mesh, can load it:

    local plans (JSON, through the board) -> rank 0: who writes what is on several ranks
    -> the index: {name: dtype, size, pieces of each rank}, in the tree of rank-0.json

The same plan serves until the names or shapes of a rank change (sharded_plan.py). DCP's own
files are not used: its metadata is a pickle, and so are the values that are no tensors.
"""

from __future__ import annotations

import contextlib
import math
import os
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

import msgspec
import torch
from torch import nn
from torch.distributed.checkpoint.default_planner import DefaultLoadPlanner, DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    Metadata,
    TensorProperties,
    TensorStorageMetadata,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from holdfast.checkpoint import object_state, optimizer_state, tensors
from holdfast.checkpoint.loading import Fill, fill_all
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.rank_files import RankFiles, TensorFile
from holdfast.checkpoint.safetensors_layout import CODES
from holdfast.checkpoint.sharded_plan import (
    SavedTensor,
    ShardAgreement,
    ShardIndex,
    ShardPiece,
    piece_name,
)
from holdfast.checkpoint.sharded_tree import (
    NamedParameters,
    ShardCollector,
    ShardRestorer,
    TensorToFill,
    index_of,
)
from holdfast.checkpoint.staging import tensor_file
from holdfast.checkpoint.tensors import TensorDecoder, named_dtype
from holdfast.checkpoint.tree import DamagedTreeError, Node
from holdfast.errors import ConfigError, EnvironmentFailure, Error

if TYPE_CHECKING:
    from torch.distributed.checkpoint.planner import LoadPlan, ReadItem


@dataclass(frozen=True)
class ShardsToWrite:
    """What this rank writes of the model and the optimizer. The tensors are not copied yet."""

    node: Node
    tensors: list[tensors.NamedTensor]


class ShardedState:
    def __init__(self, model: nn.Module | None, optimizer: object, board: MessageBoard) -> None:
        assert model is not None, "only a model makes a state sharded"
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise ConfigError(
                f"State(optimizer=…) is a {type(optimizer).__name__}: beside a sharded model it "
                "must be the torch optimizer itself"
            )
        self._model, self._optimizer, self._board = model, optimizer, board
        self._agreement = ShardAgreement(board)
        self._seen: list[tuple[object, ...]] = []
        self._items: tuple[ShardPiece, ...] = ()

    def collect(self, token: str) -> ShardsToWrite:
        """All ranks call it, at the same step, with the same token.

        What one rank cannot save is raised there, and ends the save of all (EnvironmentFailure).
        """
        try:
            with torch.no_grad():
                collected = ShardCollector(NamedParameters(self._model, self._optimizer))
                items = self._held(collected.pieces)
        except Error as problem:
            with contextlib.suppress(EnvironmentFailure):  # the others hear of it
                self._agreement.taken(token, (), problem=problem.sentence)
            raise
        taken = [items[i] for i in self._agreement.taken(token, items)]
        mine = [
            tensors.NamedTensor(
                piece_name(item.name, item.size, item.offsets, item.sizes),
                collected.local[item.name],
            )
            for item in taken
        ]
        node = collected.node
        if self._board.rank == 0:
            node["index"] = msgspec.Raw(self._agreement.index_text)
        everything = [*collected.own, *mine]
        _refuse_doubles(everything)
        return ShardsToWrite(node, everything)

    def _held(self, pieces: dict[str, torch.Tensor]) -> tuple[ShardPiece, ...]:
        """Where each is in its whole; DCP is asked again only if something has changed."""
        seen = [(name, piece.dtype, piece.shape, *_layout(piece)) for name, piece in pieces.items()]
        if seen != self._seen:
            self._items, self._seen = _items(pieces), seen
        return self._items

    def restore(self, folder: str, saved_world: int) -> None:
        """Fills the model and the optimizer, from whatever ranks and mesh there were."""
        first = RankFiles(folder, 0)
        index = read_index(first)
        rank = self._board.rank
        mine = RankFiles(folder, rank) if 0 < rank < saved_world else first
        try:
            found = ShardRestorer(NamedParameters(self._model, self._optimizer), mine, index)
        except (LookupError, TypeError, AttributeError, ValueError) as odd:
            raise DamagedTreeError(f"the saved state is damaged: {odd!r}") from odd
        with torch.no_grad():
            load(folder, index, found.wanted)
        self._give(found)

    def _give(self, found: ShardRestorer) -> None:
        """Not for the shards, which are filled: for all else, and the hooks of FSDP and of the
        user's modules."""
        try:
            object_state.load_module(self._model, found.model)
            if self._optimizer is not None and found.optimizer is not None:
                optimizer_state.load(self._optimizer, found.optimizer)
        except (RuntimeError, ValueError, KeyError) as refused:
            raise ConfigError(
                f"the model or optimizer did not take its saved state: {refused}"
            ) from refused


def _refuse_doubles(named: list[tensors.NamedTensor]) -> None:
    """Of two tensors of one name the file would hold one, and the other's bytes be lost."""
    twice = [name for name, count in Counter(each.name for each in named).items() if count > 1]
    assert not twice, f"two tensors are called {twice[0]}"


def _layout(piece: torch.Tensor) -> tuple[object, ...]:
    return (piece.device_mesh, piece.placements) if isinstance(piece, DTensor) else ()


def _items(pieces: dict[str, torch.Tensor]) -> tuple[ShardPiece, ...]:
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    planner.set_up_planner(pieces)
    found = []
    for item in planner.create_local_plan().items:
        data = item.tensor_data
        assert data is not None, "only tensors are given to it"
        sizes, size = tuple(data.chunk.sizes), tuple(data.size)
        if 0 in sizes and 0 not in size:
            continue  # this rank got nothing of a tensor with fewer rows than ranks
        dtype = tensors.dtype_name(data.properties.dtype)
        found.append(ShardPiece(item.index.fqn, dtype, size, tuple(data.chunk.offsets), sizes))
    return tuple(found)


def read_index(first: RankFiles) -> ShardIndex:
    """From what rank 0 wrote."""
    try:
        return msgspec.convert(index_of(first), ShardIndex)
    except msgspec.ValidationError as odd:
        raise DamagedTreeError(f"the saved state is damaged: {odd}") from odd


def load(folder: str, index: ShardIndex, wanted: Mapping[str, TensorToFill]) -> None:
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
    source = _PieceReader(folder, index)
    fill_all(
        [
            Fill(planner.resolve_tensor(item), source.read(wanted[item.dest_index.fqn].saved, item))
            for item in plan.items
        ]
    )


def _metadata(saved: SavedTensor) -> TensorStorageMetadata:
    return TensorStorageMetadata(
        properties=TensorProperties(dtype=named_dtype(saved.dtype)),
        size=torch.Size(saved.size),
        chunks=[
            ChunkStorageMetadata(offsets=torch.Size(part.offsets), sizes=torch.Size(part.sizes))
            for part in saved.parts
        ],
    )


def _refuse_gaps(plan: LoadPlan, wanted: Mapping[str, TensorToFill]) -> None:
    """What no piece fills would keep the values of a fresh model, unnoticed."""
    filled = dict.fromkeys(wanted, 0)
    for item in plan.items:
        filled[item.dest_index.fqn] += math.prod(item.lengths)
    for name, each in wanted.items():
        local = each.tensor.to_local() if hasattr(each.tensor, "to_local") else each.tensor
        if filled[name] != local.numel():
            raise DamagedTreeError(f"the checkpoint does not hold all of {name}")


class _PieceReader:
    """The files of all ranks, each opened when something in it is wanted."""

    def __init__(self, folder: str, index: ShardIndex) -> None:
        self._folder, self._index = folder, index
        self._files: dict[int, TensorFile] = {}
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
            self._files[rank] = TensorFile(os.path.join(self._folder, tensor_file(rank)))
        sizes = next(part.sizes for part in saved.parts if part.offsets == offsets)
        body: dict[str, object] = {"name": piece_name(name, saved.size, offsets, sizes)}
        if saved.dtype not in CODES:  # it was written as bytes
            body |= {"dtype": saved.dtype, "shape": sizes}
        found = TensorDecoder(self._files[rank].read, keep_mapped=True).decode("tensor", body)
        assert isinstance(found, torch.Tensor)
        return found
