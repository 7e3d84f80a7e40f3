"""Which rank writes which piece: planned once by rank 0, and again when a rank's pieces change.

    rank N: sharded/TOKEN/from/N  what it holds, if that is new  ->  rank 0
    rank 0: sharded/TOKEN/to/N    what N is to write, if that is new

The planning is DCP's. It goes through the board and not through a process group: a wait there is
named on the rank's page, nothing is pickled, and the job's own groups stay out of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import msgspec
import torch
from torch.distributed.checkpoint.default_planner import DefaultSavePlanner
from torch.distributed.checkpoint.metadata import (
    ChunkStorageMetadata,
    MetadataIndex,
    TensorProperties,
)
from torch.distributed.checkpoint.planner import SavePlan, TensorWriteData, WriteItem, WriteItemType

from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.messages import PATIENCE
from holdfast.checkpoint.tensors import named_dtype
from holdfast.errors import EnvironmentFailure, Error

Shape = tuple[int, ...]


class ShardPiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a tensor that a rank holds, as JSON carries it."""

    name: str
    dtype: str
    size: Shape
    """of the whole tensor"""
    offsets: Shape
    sizes: Shape


class ShardPart(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a tensor in the file of one rank."""

    rank: int
    offsets: Shape
    sizes: Shape


class SavedTensor(msgspec.Struct, frozen=True, array_like=True):
    """One tensor of the index: what it is, and where its pieces are."""

    dtype: str
    size: Shape
    parts: tuple[ShardPart, ...]


ShardIndex = dict[str, SavedTensor]


@dataclass(frozen=True)
class ShardPlan:
    taken: list[tuple[int, ...]]
    """of each rank's items, in their order, those that it writes"""
    index: ShardIndex


def piece_name(name: str, size: Shape, offsets: Shape, sizes: Shape) -> str:
    """In the file of tensors: 'model.fc.weight[16,0]', without the brackets if it is whole."""
    return name if sizes == size else f"{name}[{','.join(map(str, offsets))}]"


def divide(held: Sequence[Sequence[ShardPiece]]) -> ShardPlan:
    """Every piece once, what several ranks hold spread over them. Pure."""
    for name, found in _descriptions(held).items():
        if len(found) > 1:
            raise EnvironmentFailure(f"{name} differs between ranks: {' and '.join(sorted(found))}")
    plans = [SavePlan([_write_item(item) for item in items]) for items in held]
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    try:
        divided, _ = planner.create_global_plan(plans)
    except ValueError as problem:  # gaps or overlaps: a layout that it cannot describe
        raise EnvironmentFailure(
            f"the shards of all ranks do not make whole tensors: {problem}",
            hint="shard every parameter evenly over the ranks",
        ) from problem
    taken: list[tuple[int, ...]] = []
    index: ShardIndex = {}
    for rank, (items, plan) in enumerate(zip(held, divided, strict=True)):
        kept = {(one.index.fqn, tuple(one.index.offset or ())) for one in plan.items}
        mine = tuple(i for i, item in enumerate(items) if (item.name, item.offsets) in kept)
        taken.append(mine)
        for item in (items[i] for i in mine):
            saved = index.get(item.name) or SavedTensor(item.dtype, item.size, ())
            part = ShardPart(rank, item.offsets, item.sizes)
            index[item.name] = msgspec.structs.replace(saved, parts=(*saved.parts, part))
    return ShardPlan(taken, index)


def _descriptions(held: Sequence[Sequence[ShardPiece]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for items in held:
        for item in items:
            found.setdefault(item.name, set()).add(f"{item.dtype} {list(item.size)}")
    return found


def _write_item(item: ShardPiece) -> WriteItem:
    offsets, sizes = torch.Size(item.offsets), torch.Size(item.sizes)
    return WriteItem(
        index=MetadataIndex(item.name, offsets),
        type=WriteItemType.SHARD,
        tensor_data=TensorWriteData(
            chunk=ChunkStorageMetadata(offsets=offsets, sizes=sizes),
            properties=TensorProperties(dtype=named_dtype(item.dtype)),
            size=torch.Size(item.size),
        ),
    )


# --- all ranks agree ---------------------------------------------------------------------------


class _HeldPieces(msgspec.Struct, frozen=True, kw_only=True):
    items: tuple[ShardPiece, ...] | None = None
    """None: those it has sent before"""
    division: int = 0
    """the one that this rank knows"""
    problem: str = ""


class _AssignedPieces(msgspec.Struct, frozen=True, kw_only=True):
    taken: tuple[int, ...] | None = None
    """None: as before"""
    division: int = 0
    problem: str = ""
    hint: str = ""


class ShardAgreement:
    """One per Sharded: remembers the division for as long as no rank's items change."""

    def __init__(self, board: MessageBoard, *, patience: float = PATIENCE) -> None:
        self._board, self._patience = board, patience
        self._posted: tuple[ShardPiece, ...] | None = None
        self._taken: tuple[int, ...] = ()
        self._number = 0
        # On rank 0:
        self._held: list[tuple[ShardPiece, ...] | None] = [None] * board.world_size
        self._division, self._latest = ShardPlan([], {}), 0
        self.index_text = b""
        """the whole index as JSON, on rank 0"""

    def taken(
        self, token: str, items: tuple[ShardPiece, ...], problem: str = ""
    ) -> tuple[int, ...]:
        """Which of its items this rank writes. All ranks call it, with the save's token.

        A `problem` of one rank ends the save on all of them, with the same sentence.
        """
        new = None if items == self._posted else items
        mine = _HeldPieces(items=new, division=self._number, problem=problem)
        yours = self._lead(token, mine) if self._board.rank == 0 else self._follow(token, mine)
        if yours.problem:
            self._posted = None
            raise EnvironmentFailure(yours.problem, hint=yours.hint)
        if yours.taken is not None:
            self._taken, self._number = yours.taken, yours.division
        self._posted = items
        return self._taken

    def _follow(self, token: str, mine: _HeldPieces) -> _AssignedPieces:
        rank = self._board.rank
        self._board.post(f"sharded/{token}/from/{rank}", mine)
        name = f"sharded/{token}/to/{rank}"
        # Twice: whether a rank came too late is for rank 0 to say, and for all the same.
        yours = self._board.receive(name, _AssignedPieces, patience=2 * self._patience)
        self._board.remove(name)
        return yours

    def _lead(self, token: str, mine: _HeldPieces) -> _AssignedPieces:
        try:
            told = [mine, *self._hear_all(token)]
            self._learn(told)
            answers = [self._answer(rank, each) for rank, each in enumerate(told)]
        except Error as problem:
            yours = _AssignedPieces(problem=problem.sentence, hint=problem.hint)
            answers = [yours] * self._board.world_size
        for rank in range(1, self._board.world_size):
            self._board.post(f"sharded/{token}/to/{rank}", answers[rank])
        return answers[0]

    def _hear_all(self, token: str) -> list[_HeldPieces]:
        found = []
        for rank in range(1, self._board.world_size):
            name = f"sharded/{token}/from/{rank}"
            found.append(
                self._board.receive(name, _HeldPieces, sender=rank, patience=self._patience)
            )
            self._board.remove(name)
        return found

    def _learn(self, told: Sequence[_HeldPieces]) -> None:
        for rank, each in enumerate(told):
            if each.problem:
                raise EnvironmentFailure(f"rank {rank}: {each.problem}")
            if each.items is not None and each.items != self._held[rank]:
                self._held[rank] = each.items
                self._division = ShardPlan([], {})
        if not self._division.taken:
            held = [items for items in self._held if items is not None]
            assert len(held) == self._board.world_size, "a rank has never sent its items"
            self._division = divide(held)
            self._latest += 1
            self.index_text = msgspec.json.encode(self._division.index)

    def _answer(self, rank: int, mine: _HeldPieces) -> _AssignedPieces:
        if mine.division == self._latest:
            return _AssignedPieces()
        return _AssignedPieces(taken=self._division.taken[rank], division=self._latest)
