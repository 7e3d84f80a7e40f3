"""What all ranks together hold: ranks that hold the same describe it once. Pure.

    merge(groups)      -> the index of the checkpoint, and who holds each plain tensor
    pieces_to_write(…) -> what one rank writes, which it finds out by itself

What is in a DTensor follows from its mesh (sharded_layout.py). A plain tensor (a parameter that is
not sharded, the step count of an optimizer) is held whole by every rank that has one of its name.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import msgspec

from holdfast.checkpoint.sharded_index import SavedTensor, ShardIndex
from holdfast.checkpoint.sharded_layout import LayoutGrid, Piece, Shape, ShardLayout, held_by
from holdfast.errors import ConfigError
from holdfast.text import ranks as in_words

WHOLE = -1
HINT = (
    "give what differs between ranks names of its own, such as the number of each layer in the "
    'whole model, or let every rank save its own: State(…, per_rank=("model", "optimizer"))'
)


class HeldTensor(msgspec.Struct, frozen=True, array_like=True):
    name: str
    dtype: str
    size: Shape
    """of the whole tensor"""
    layout: int
    """its number among the layouts; WHOLE for a plain tensor"""


class HeldState(msgspec.Struct, frozen=True):
    """What a rank holds; the same on most of them."""

    layouts: tuple[ShardLayout, ...] = ()
    tensors: tuple[HeldTensor, ...] = ()
    structure: dict[str, str] = {}
    """names, shapes and types, for a later comparison (object_state.py)"""


Samples = Mapping[str, tuple[float, ...]]
"""name of a tensor -> some values of this rank's part"""


@dataclass(frozen=True)
class RankGroup:
    """Ranks that hold the same."""

    ranks: tuple[int, ...]
    held: HeldState
    samples: Samples = field(default_factory=dict)
    """of the first of the ranks"""


class PieceHolders(msgspec.Struct, frozen=True):
    """Who holds each tensor of a group, all groups considered."""

    layouts: tuple[ShardLayout, ...] = ()
    runs: tuple[tuple[tuple[int, int], ...], ...] = ()
    """for the plain tensors, and those of each layout: (so many, have the layout of this number)"""


@dataclass(frozen=True)
class ShardPlan:
    index: ShardIndex
    structure: dict[str, str]
    holders: list[PieceHolders]
    """for each group"""


Replicas = set[tuple[ShardLayout, ShardLayout]]
"""two layouts that were seen to hold the same tensors"""


def merge(groups: Sequence[RankGroup], replicas: Replicas | None = None) -> ShardPlan:
    """Raises ConfigError where one name stands for several tensors."""
    judge = _Judge(groups, set() if replicas is None else replicas)
    tensors: dict[str, SavedTensor] = {}
    held_in: dict[str, list[tuple[int, int]]] = {}
    for number, group in enumerate(groups):
        for name, dtype, size, layout in map(_fields, group.held.tensors):
            here = SavedTensor(dtype, size, 0)
            if tensors.setdefault(name, here) != here:
                raise _differs(name, tensors[name], here, groups[held_in[name][0][0]], group)
            held_in.setdefault(name, []).append((number, layout))
    numbers: dict[ShardLayout, int] = {}
    known: dict[tuple[tuple[int, int], ...], int] = {}
    for name, places in held_in.items():
        key = tuple(places)
        if key not in known:
            common = _common_layout(name, places, groups, judge)
            known[key] = numbers.setdefault(common, len(numbers))
        tensors[name] = SavedTensor(tensors[name].dtype, tensors[name].size, known[key])
    judge.refuse_other_values(held_in)
    layouts = tuple(numbers)
    return ShardPlan(
        ShardIndex(tensors, layouts),
        _union(groups),
        [_holders(group, tensors, layouts) for group in groups],
    )


def _fields(tensor: HeldTensor) -> tuple[str, str, Shape, int]:
    return tensor.name, tensor.dtype, tensor.size, tensor.layout


def _differs(
    name: str, one: SavedTensor, other: SavedTensor, first: RankGroup, second: RankGroup
) -> ConfigError:
    return ConfigError(
        f"{name} is {one.dtype} {list(one.size)} on {in_words(first.ranks)}, and {other.dtype} "
        f"{list(other.size)} on {in_words(second.ranks)}",
        hint=HINT,
    )


def _common_layout(
    name: str, places: list[tuple[int, int]], groups: Sequence[RankGroup], judge: _Judge
) -> ShardLayout:
    """Of a tensor that some groups hold, each with the layout of that number."""
    if all(layout == WHOLE for _, layout in places):
        return held_by(sorted(rank for number, _ in places for rank in groups[number].ranks))
    found: dict[ShardLayout, list[int]] = {}
    for number, of_group in places:
        if of_group == WHOLE:
            raise ConfigError(
                f"{name} is sharded on some ranks, and a plain tensor on "
                f"{in_words(groups[number].ranks)}",
                hint=HINT,
            )
        found.setdefault(groups[number].held.layouts[of_group], []).append(number)
    first, *others = found
    for layout, numbers in found.items():
        holding = {rank for number in numbers for rank in groups[number].ranks}
        if missing := set(layout.ranks) - holding:
            raise ConfigError(
                f"{name} is divided among {in_words(layout.ranks)}, but {in_words(missing)} "
                "did not describe it",
                hint=HINT,
            )
        if layout is not first:
            judge.refuse_unless_replicas(name, first, found[first][0], layout, numbers[0])
    if not others:
        return first
    # Beside tensor parallelism, FSDP2 divides what is not tensor parallel in a mesh for each.
    ranks = tuple(rank for layout in found for rank in layout.ranks)
    return ShardLayout((len(found), *first.mesh), ranks, (None, *first.cuts))


class _Judge:
    """Does one name stand for one tensor on all ranks? Values tell, as far as they were sent."""

    def __init__(self, groups: Sequence[RankGroup], replicas: Replicas) -> None:
        self._groups, self._replicas = groups, replicas
        self._matrices = {
            each.name for group in groups for each in group.held.tensors if is_matrix(each)
        }

    def refuse_unless_replicas(
        self, name: str, one: ShardLayout, at: int, other: ShardLayout, other_at: int
    ) -> None:
        if (one, other) in self._replicas:
            return
        first, second = self._groups[at], self._groups[other_at]
        alike = (one.mesh, one.cuts) == (other.mesh, other.cuts)
        same_place = alike and one.ranks.index(first.ranks[0]) == other.ranks.index(second.ranks[0])
        shared = first.samples.keys() & second.samples.keys() & _names(first, one)
        vectors, matrices = ([key for key in sorted(shared) if (key in self._matrices) is is_matrix]
                             for is_matrix in (False, True))  # fmt: skip
        compared = matrices or vectors
        odd = [key for key in compared if differ(first.samples[key], second.samples[key])]
        # Some vectors are noise: where they are all there is, most must agree.
        few = len(odd) * 2 < len(compared) if not matrices else not odd
        if not same_place or not few:
            raise ConfigError(
                f"{odd[0] if odd else name} is on {in_words(one.ranks)}, and on "
                f"{in_words(other.ranks)} in another mesh"
                + (", with other values" if odd else "")
                + ": one name for different tensors",
                hint=HINT,
            )
        self._replicas.add((one, other))

    def refuse_other_values(self, held_in: dict[str, list[tuple[int, int]]]) -> None:
        """Of plain tensors."""
        for name, places in held_in.items():
            known = [self._groups[n] for n, layout in places if layout == WHOLE]
            known = [group for group in known if name in group.samples]
            for other in known[1:] if name in self._matrices else ():
                if differ(known[0].samples[name], other.samples[name]):
                    raise other_values(name, known[0].ranks, other.ranks)


def _names(group: RankGroup, layout: ShardLayout) -> set[str]:
    number = group.held.layouts.index(layout)
    return {each.name for each in group.held.tensors if each.layout == number}


def is_matrix(tensor: HeldTensor) -> bool:
    """Weights begin with random values; many vectors do not."""
    return len(tensor.size) > 1


def differ(one: Sequence[float], other: Sequence[float]) -> bool:
    """Other tensors, and not the same one after sums in another order."""
    scale = max(map(abs, [*one, *other]), default=0.0)
    apart = [abs(a - b) > scale / 4 for a, b in zip(one, other, strict=False)]
    return len(one) != len(other) or 2 * sum(apart) >= len(apart) > 0


def other_values(name: str, first: Iterable[int], second: Iterable[int]) -> ConfigError:
    return ConfigError(
        f"{name} is a plain tensor with other values on {in_words(first)} than on "
        f"{in_words(second)}: only one of them would be saved",
        hint=HINT,
    )


def _holders(
    group: RankGroup, tensors: dict[str, SavedTensor], layouts: Sequence[ShardLayout]
) -> PieceHolders:
    of_layout: list[list[int]] = [[] for _ in range(len(group.held.layouts) + 1)]
    for each in group.held.tensors:
        of_layout[each.layout + 1].append(tensors[each.name].layout)
    used = list(dict.fromkeys(number for numbers in of_layout for number in numbers))
    place = {number: i for i, number in enumerate(used)}
    runs = tuple(
        tuple((len(list(same)), place[number]) for number, same in groupby(numbers))
        for numbers in of_layout
    )
    return PieceHolders(tuple(layouts[number] for number in used), runs)


def _union(groups: Sequence[RankGroup]) -> dict[str, str]:
    found: dict[str, str] = {}
    for group in groups:
        for name, what in group.held.structure.items():
            if found.setdefault(name, what) != what:
                raise ConfigError(
                    f"{name} differs between ranks: {found[name]}, and {what} on "
                    f"{in_words(group.ranks)}",
                    hint=HINT,
                )
    return found


# --- one rank's part ---------------------------------------------------------------------------


class Grids:
    """The arithmetic of each layout, kept from save to save."""

    def __init__(self) -> None:
        self._known: dict[ShardLayout, LayoutGrid] = {}

    def of(self, layout: ShardLayout) -> LayoutGrid:
        if layout not in self._known:
            self._known[layout] = LayoutGrid(layout)
        return self._known[layout]


def pieces_to_write(
    rank: int, held: HeldState, holders: PieceHolders, grids: Grids
) -> list[tuple[str, Shape, Piece]]:
    """(name, size of the whole, piece) of what this rank writes: every piece is one rank's."""
    shared = [grids.of(layout) for layout in holders.layouts]
    of_layout = [
        iter([shared[number] for count, number in runs for _ in range(count)])
        for runs in holders.runs
    ]
    found = []
    for name, _, size, layout in map(_fields, held.tensors):
        grid = next(of_layout[layout + 1])
        piece = grid.piece(size, rank)
        if not piece.is_empty and grid.writer(name, size, rank) == rank:
            found.append((name, size, piece))
    return found


def piece_name(name: str, size: Shape, offsets: Shape, sizes: Shape) -> str:
    """In the file of tensors: 'model.fc.weight[16,0]', without the brackets if it is whole."""
    return name if sizes == size else f"{name}[{','.join(map(str, offsets))}]"
