"""State of which each rank holds a part: FSDP2, tensor parallel, any mesh of DTensors.

    sharded = ShardedState(state, board)            where State.kind is "sharded"
    share = sharded.collect(token)                  all ranks, at the announced step
    captured = state.capture(rank, sharded=share.node, structure=share.structure)
    buffer.stage([*captured.tensors, *share.tensors], captured.text)

    sharded.structure(…)                            all ranks: of the whole job
    sharded.restore(folder, saved_world)            all ranks, before state.restore(…)

Each rank writes its pieces into its own `rank-N.safetensors`. Another number of ranks, or another
mesh, can load them: the index in the tree of rank-0.json says how each tensor was divided.

    what is held (sharded_tree.py) -> all ranks agree (sharded_agreement.py) -> the index
    (sharded_index.py), from which every piece's place follows (sharded_layout.py)

The same plan serves until the names or shapes of a rank change. torch.distributed.checkpoint is
not used: its planning takes minutes for a thousand ranks, and its metadata is a pickle.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import os
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import torch
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer

from holdfast.checkpoint import object_state, optimizer_state, tensors
from holdfast.checkpoint.dtensor_layout import DTensorLayouts, local_part
from holdfast.checkpoint.loading import Fill, LaterCopies
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.rank_files import RankFiles, TensorFile
from holdfast.checkpoint.safetensors_layout import CODES
from holdfast.checkpoint.sharded_agreement import HeldDigest, ShardAgreement
from holdfast.checkpoint.sharded_index import ShardIndex
from holdfast.checkpoint.sharded_layout import Overlap, Piece, Shape, ShardLayout
from holdfast.checkpoint.sharded_plan import (
    WHOLE,
    Grids,
    HeldState,
    HeldTensor,
    piece_name,
    pieces_to_write,
)
from holdfast.checkpoint.sharded_tree import (
    NamedParameters,
    ShardCollector,
    ShardRestorer,
    TensorToFill,
)
from holdfast.checkpoint.staging import tensor_file
from holdfast.checkpoint.state import State
from holdfast.checkpoint.tensors import TensorDecoder, dtype_name, named_dtype
from holdfast.checkpoint.tree import DamagedTreeError, Node
from holdfast.errors import ConfigError, EnvironmentFailure, Error

_SAMPLE = 16
"""values of a tensor that are compared between ranks"""


@dataclass(frozen=True)
class ShardsToWrite:
    """What this rank writes of the sharded state. The tensors are not copied yet."""

    node: Node
    tensors: list[tensors.NamedTensor]
    structure: dict[str, str]
    """of all ranks together; on rank 0"""


class ShardedState:
    def __init__(self, state: State, board: MessageBoard) -> None:
        if state.optimizer is not None and not isinstance(state.optimizer, Optimizer):
            raise ConfigError(
                f"State(optimizer=…) is a {type(state.optimizer).__name__}: beside a sharded model "
                "it must be the torch optimizer itself"
            )
        self._state, self._board = state, board
        self._agreement = ShardAgreement(board)
        self._structures, self._asked = ShardAgreement(board), itertools.count()
        self._layouts, self._grids = DTensorLayouts(), Grids()
        self._seen: tuple[object, ...] = ()
        self._held = HeldDigest(HeldState())

    def collect(self, token: str) -> ShardsToWrite:
        """All ranks call it, at the same step, with the same token.

        What one rank cannot save is raised there, and ends the save of all (EnvironmentFailure).
        What differs between ranks and must not is a ConfigError on all of them.
        """
        try:
            with torch.no_grad():
                named = self._named()
                named.refuse_unnamed()
                collected = ShardCollector(named, self._state.per_rank)
                mine = self._describe(collected)
        except Error as problem:
            with contextlib.suppress(EnvironmentFailure):  # the others hear of it
                self._agreement.fail(token, problem.sentence)
            raise
        holders = self._agreement.agree(token, mine, lambda: _samples(collected))
        written = [
            tensors.NamedTensor(
                piece_name(name, size, piece.offsets, piece.sizes), collected.local[name]
            )
            for name, size, piece in pieces_to_write(
                self._board.rank, mine.held, holders, self._grids
            )
        ]
        node, structure = collected.node, {}
        if self._board.rank == 0:
            node["index"] = msgspec.Raw(self._agreement.index_text)
            node["trees"] = list(self._agreement.first_of_groups)
            structure = self._agreement.plan.structure if self._agreement.plan else {}
        everything = [*collected.own, *written]
        _refuse_doubles(everything)
        return ShardsToWrite(node, everything, structure)

    def _named(self) -> NamedParameters:
        state = self._state
        return NamedParameters(state.model, state.optimizer, state.sharded_extras())

    def _describe(self, collected: ShardCollector) -> HeldDigest:
        """What this rank holds; described again only if something has changed."""
        layouts: dict[ShardLayout, int] = {}
        number_of: dict[int, int] = {}
        found = []
        for name, value in collected.pieces.items():
            number = WHOLE
            if isinstance(value, DTensor):
                if self._layouts.piece(name, value, collected.local[name]) is None:
                    continue  # of a mesh that this rank is not in
                grid = self._layouts.of(value)
                if id(grid) not in number_of:
                    number_of[id(grid)] = layouts.setdefault(grid.layout, len(layouts))
                number = number_of[id(grid)]
            found.append(HeldTensor(name, dtype_name(value.dtype), tuple(value.shape), number))
        own = tuple(named.entry() for named in collected.own)
        seen = (tuple(found), tuple(layouts), own)
        if seen != self._seen:
            structure = self._state.structure()
            self._held, self._seen = HeldDigest(HeldState(seen[1], seen[0], structure)), seen
        return self._held

    def structure(self, mine: dict[str, str]) -> dict[str, str]:
        """Of all ranks together, on every rank: pipeline stages have other parameters each."""
        token = f"structure{next(self._asked)}"
        self._structures.agree(token, HeldDigest(HeldState(structure=mine)))
        name = f"sharded/{token}/whole"
        if self._board.rank == 0:
            plan = self._structures.plan
            assert plan is not None
            same = len(self._structures.first_of_groups) == 1
            self._board.post(name, _Structure(found=None if same else plan.structure))
        found = self._board.receive(name, _Structure, purpose="resume").found
        return mine if found is None else found

    def restore(self, folder: str, saved_world: int, prepared: ShardRestorer | None = None) -> None:
        """Fills everything that is sharded, from whatever ranks and mesh there were."""
        later = LaterCopies()
        found = prepared or self.prepare(folder, saved_world, later)
        later.fill()
        self._give(found)

    def prepare(self, folder: str, saved_world: int, later: LaterCopies) -> ShardRestorer:
        """All of it without its values, which come when `later` is filled."""
        first = RankFiles(folder, 0, later)
        index = read_index(first)
        rank = self._board.rank
        mine = RankFiles(folder, rank, later) if 0 < rank < saved_world else first
        others = _others(folder, first, mine, later)
        try:
            with torch.no_grad():
                found = ShardRestorer(self._named(), mine, index, others)
        except (LookupError, TypeError, AttributeError, ValueError) as odd:
            if isinstance(odd, Error):
                raise
            raise DamagedTreeError(f"the saved state is damaged: {odd!r}") from odd
        with torch.no_grad():
            plan_load(folder, index, found.wanted, later)
        later.fills += found.copies
        return found

    def _give(self, found: ShardRestorer) -> None:
        """Not for the shards, which are filled: for all else, and the hooks of FSDP and of the
        user's modules."""
        try:
            if self._state.model is not None:
                object_state.load_module(self._state.model, found.model)
            if self._state.optimizer is not None and found.optimizer is not None:
                optimizer_state.load(self._state.optimizer, found.optimizer)
        except (RuntimeError, ValueError, KeyError) as refused:
            raise ConfigError(
                f"the model or optimizer did not take its saved state: {refused}"
            ) from refused
        for name, value in found.others.items():
            self._state.give(name, value)


class _Structure(msgspec.Struct, frozen=True):
    found: dict[str, str] | None


def _refuse_doubles(named: list[tensors.NamedTensor]) -> None:
    """Of two tensors of one name the file would hold one, and the other's bytes be lost."""
    twice = [name for name, count in Counter(each.name for each in named).items() if count > 1]
    assert not twice, f"two tensors are called {twice[0]}"


def _samples(collected: ShardCollector) -> dict[str, tuple[float, ...]]:
    """Some values of each weight, to see whether ranks mean the same by its name. Not of an
    optimizer's state: much of it is noise."""
    found = ((name, collected.local.get(name)) for name in collected.weights)
    return {name: _sample(local) for name, local in found if local is not None and local.numel()}


def _sample(tensor: torch.Tensor) -> tuple[float, ...]:
    flat = tensor.detach().reshape(-1)[:: max(1, tensor.numel() // _SAMPLE)][:_SAMPLE]
    values = flat.abs() if flat.is_complex() else flat
    return tuple(float(f"{value:.4g}") if math.isfinite(value) else 0.0
                 for value in values.double().tolist())  # fmt: skip


def _others(
    folder: str, first: RankFiles, mine: RankFiles, later: LaterCopies
) -> Callable[[], list[RankFiles]]:
    """One tree of each kind that ranks had: where a rank's own does not have all it needs."""

    def read() -> list[RankFiles]:
        ranks = first.part("sharded").get("trees", [0])
        return [mine, *(RankFiles(folder, int(rank), later) for rank in ranks)]

    return read


# --- loading -----------------------------------------------------------------------------------


def read_index(first: RankFiles) -> ShardIndex:
    """From what rank 0 wrote."""
    found = first.part("sharded").get("index")
    if not isinstance(found, dict):
        raise DamagedTreeError("the saved state is damaged: it has no index of its pieces")
    return ShardIndex.from_node(found)


def load(folder: str, index: ShardIndex, wanted: Mapping[str, TensorToFill]) -> None:
    """Fills all tensors in place. All of it is planned before the first is touched."""
    later = LaterCopies()
    plan_load(folder, index, wanted, later)
    later.fill()


def plan_load(
    folder: str, index: ShardIndex, wanted: Mapping[str, TensorToFill], later: LaterCopies
) -> None:
    """Raises unless all of it is there."""
    layouts = DTensorLayouts()
    plan = [
        (local, each, blocks)
        for name, each in wanted.items()
        if (local := local_part(each.tensor)).numel()
        and (piece := _wanted_piece(name, each, index, layouts, local)) is not None
        and (blocks := _blocks(name, each.saved, index, piece, local))
    ]
    source = _PieceReader(folder, index, later)
    for local, each, blocks in plan:
        for block in blocks:
            target = _narrowed(local, block.target, block.lengths)
            later.fills.append(Fill(target, source.read(each.saved, block), each.fresh))


def _narrowed(tensor: torch.Tensor, starts: Shape, lengths: Shape) -> torch.Tensor:
    for axis, (start, length) in enumerate(zip(starts, lengths, strict=True)):
        tensor = tensor.narrow(axis, start, length)
    return tensor


def _wanted_piece(
    name: str, each: TensorToFill, index: ShardIndex, layouts: DTensorLayouts, local: torch.Tensor
) -> Piece | None:
    if each.saved not in index:
        raise DamagedTreeError(f"{each.saved!r:.80} is not in the index of the checkpoint")
    saved = index[each.saved]
    named_dtype(saved.dtype)
    if saved.size != tuple(each.tensor.shape):
        raise ConfigError(
            f"the checkpoint does not fit this model: {name} is {list(saved.size)} there, "
            f"{list(each.tensor.shape)} here"
        )
    return layouts.piece(name, each.tensor, local)


def _blocks(
    name: str, saved: str, index: ShardIndex, piece: Piece, local: torch.Tensor
) -> list[Overlap]:
    """What nothing fills would keep the values of a fresh model, unnoticed."""
    blocks = list(index.overlaps(saved, piece))
    if sum(math.prod(block.lengths) for block in blocks) != local.numel():
        raise DamagedTreeError(f"the checkpoint does not hold all of {name}")
    return blocks


class _PieceReader:
    """The files of all ranks, each opened when something in it is wanted."""

    def __init__(self, folder: str, index: ShardIndex, later: LaterCopies) -> None:
        self._folder, self._index, self._later = folder, index, later
        self._files: dict[int, TensorFile] = {}

    def read(self, name: str, block: Overlap) -> torch.Tensor:
        piece = self._piece(name, block)
        try:
            piece = _narrowed(piece, block.source, block.lengths)
        except (RuntimeError, IndexError) as odd:
            raise DamagedTreeError(f"a piece of {name} is not as large as it says: {odd}") from odd
        return piece

    def _piece(self, name: str, block: Overlap) -> torch.Tensor:
        saved = self._index[name]
        if block.rank not in self._files:
            path = os.path.join(self._folder, tensor_file(block.rank))
            self._files[block.rank] = TensorFile(path)
            self._later.opened.append(self._files[block.rank])
        body: dict[str, Any] = {"name": piece_name(name, saved.size, block.offsets, block.sizes)}
        if saved.dtype not in CODES:  # it was written as bytes
            body |= {"dtype": saved.dtype, "shape": block.sizes}
        read = self._files[block.rank].read
        found = TensorDecoder(read, keep_mapped=True).decode("tensor", body)
        assert isinstance(found, torch.Tensor)
        return found
