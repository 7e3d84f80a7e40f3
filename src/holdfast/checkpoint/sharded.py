"""State of which each rank holds a part: FSDP2, tensor parallel, any mesh of DTensors.

    sharded = Sharded(model, optimizer, board)      where State.kind is "sharded"
    share = sharded.collect(token)                  all ranks, at the announced step
    captured = state.capture(rank, sharded=share.node)
    buffer.stage([*captured.tensors, *share.tensors], captured.text)

    sharded.restore(folder, saved_world)            all ranks, before state.restore(…)

Each rank writes its pieces into its own `rank-N.safetensors`. What lies where is planned by
torch.distributed.checkpoint, so another number of ranks, or another mesh, can load it:

    local plans (JSON, through the board) -> rank 0: who writes what is on several ranks
    -> the index: {name: dtype, size, pieces of each rank}, in the tree of rank-0.json

The same plan serves until the names or shapes of a rank change (sharded_plan.py). DCP's own
files are not used: its metadata is a pickle, and so are the values that are no tensors.
"""

from __future__ import annotations

import contextlib
from collections import Counter
from dataclasses import dataclass

import msgspec
import torch
from torch import nn
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from holdfast.checkpoint import modules, tensors
from holdfast.checkpoint.announce import Board
from holdfast.checkpoint.reading import RankFiles
from holdfast.checkpoint.sharded_load import load, read_index
from holdfast.checkpoint.sharded_plan import Agreement, Item, piece_name
from holdfast.checkpoint.sharded_tree import Collect, Named, Restore
from holdfast.checkpoint.tree import DamagedTreeError, Node
from holdfast.errors import ConfigError, EnvironmentFailure, Error


@dataclass(frozen=True)
class Share:
    """What this rank writes of the model and the optimizer. The tensors are not copied yet."""

    node: Node
    tensors: list[tensors.Named]


class Sharded:
    def __init__(self, model: nn.Module | None, optimizer: object, board: Board) -> None:
        assert model is not None, "only a model makes a state sharded"
        if optimizer is not None and not isinstance(optimizer, Optimizer):
            raise ConfigError(
                f"State(optimizer=…) is a {type(optimizer).__name__}: beside a sharded model it "
                "must be the torch optimizer itself"
            )
        self._model, self._optimizer, self._board = model, optimizer, board
        self._agreement = Agreement(board)
        self._seen: list[tuple[object, ...]] = []
        self._items: tuple[Item, ...] = ()

    def collect(self, token: str) -> Share:
        """All ranks call it, at the same step, with the same token.

        What one rank cannot save is raised there, and ends the save of all (EnvironmentFailure).
        """
        try:
            with torch.no_grad():
                collected = Collect(Named(self._model, self._optimizer))
                items = self._held(collected.pieces)
        except Error as problem:
            with contextlib.suppress(EnvironmentFailure):  # the others hear of it
                self._agreement.taken(token, (), problem=problem.sentence)
            raise
        taken = [items[i] for i in self._agreement.taken(token, items)]
        mine = [
            tensors.Named(
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
        return Share(node, everything)

    def _held(self, pieces: dict[str, torch.Tensor]) -> tuple[Item, ...]:
        """Where each lies in its whole; DCP is asked again only if something has changed."""
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
            found = Restore(Named(self._model, self._optimizer), mine, index)
        except (LookupError, TypeError, AttributeError, ValueError) as odd:
            raise DamagedTreeError(f"the saved state is damaged: {odd!r}") from odd
        with torch.no_grad():
            load(folder, index, found.wanted)
        self._give(found)

    def _give(self, found: Restore) -> None:
        """Not for the shards, which are filled: for all else, and the hooks of FSDP and of the
        user's modules."""
        try:
            modules.load_module(self._model, found.model)
            if self._optimizer is not None and found.optimizer is not None:
                modules.load_optimizer(self._optimizer, found.optimizer)
        except (RuntimeError, ValueError, KeyError) as refused:
            raise ConfigError(
                f"the model or optimizer did not take its saved state: {refused}"
            ) from refused


def _refuse_doubles(named: list[tensors.Named]) -> None:
    """Of two tensors of one name the file would hold one, and the other's bytes be lost."""
    twice = [name for name, count in Counter(each.name for each in named).items() if count > 1]
    assert not twice, f"two tensors are called {twice[0]}"


def _layout(piece: torch.Tensor) -> tuple[object, ...]:
    return (piece.device_mesh, piece.placements) if isinstance(piece, DTensor) else ()


def _items(pieces: dict[str, torch.Tensor]) -> tuple[Item, ...]:
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
        found.append(Item(item.index.fqn, dtype, size, tuple(data.chunk.offsets), sizes))
    return tuple(found)
