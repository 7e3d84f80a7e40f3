"""Where every rank's piece of a tensor is: from its mesh and placements, by arithmetic. Pure.

    layout = ShardLayout(mesh=(2, 4), ranks=(0, …, 7), cuts=(None, (0, 1)))
    grid = LayoutGrid(layout)
    grid.piece((100, 3), rank=5)          what rank 5 holds of a tensor of 100 x 3
    grid.writer(name, (100, 3), rank=5)   which of the ranks that hold the same writes it

So no rank has to be told what another one holds: 1,024 ranks with 45,000 tensors have 46 million
pieces, and a dozen layouts.

A rank holds, of each side of a tensor, one or several runs of rows: several where FSDP2 divides
what tensor parallelism has divided before (torch's _StridedShard).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import product
from typing import NamedTuple
from zlib import crc32

import msgspec

Shape = tuple[int, ...]
Cut = tuple[int, int]
"""(side of the tensor, torch's split factor: 1, or more for a _StridedShard)"""

SMALL = 1 << 14
"""elements: of smaller pieces that many ranks hold only the first FEW ranks write some, so that
a rank that loads them has few files to open"""
FEW = 8


class ShardLayout(msgspec.Struct, frozen=True, array_like=True):
    """How a mesh of ranks divides a tensor, whatever its size."""

    mesh: Shape
    ranks: Shape
    """of the mesh, the last dimension fastest"""
    cuts: tuple[Cut | None, ...]
    """what each dimension of the mesh divides; None: all along it hold the same"""


def held_by(ranks: Sequence[int]) -> ShardLayout:
    """All of them hold all of it."""
    return ShardLayout((len(ranks),), tuple(ranks), (None,))


class RowRange(NamedTuple):
    """Consecutive rows of one side of a tensor, and where they are in a piece of it."""

    start: int
    length: int
    at: int


class Piece(NamedTuple):
    """What a rank holds of a tensor."""

    offsets: Shape
    """of its first element"""
    sizes: Shape
    sides: tuple[tuple[RowRange, ...], ...]

    @property
    def is_empty(self) -> bool:
        return 0 in self.sizes


class Overlap(NamedTuple):
    """A block that is in a wanted piece and in a stored one."""

    rank: int
    """that wrote it"""
    offsets: Shape
    sizes: Shape
    """of the stored piece"""
    source: Shape
    """where the block starts in the stored piece"""
    target: Shape
    """and in the wanted one"""
    lengths: Shape


class LayoutGrid:
    """One layout, with what does not depend on a tensor worked out."""

    def __init__(self, layout: ShardLayout) -> None:
        if math.prod(layout.mesh) != len(layout.ranks) or len(layout.mesh) != len(layout.cuts):
            raise ValueError(f"a mesh of {layout.mesh} for {len(layout.ranks)} ranks")
        if any(cut and (cut[0] < 0 or cut[1] < 1) for cut in layout.cuts):
            raise ValueError(f"a mesh that divides {layout.cuts}")
        self.layout = layout
        self._replicated = [d for d, cut in enumerate(layout.cuts) if cut is None]
        self._holders = math.prod(layout.mesh[d] for d in self._replicated)
        self._dimensions: dict[int, list[int]] = {}
        for dimension, cut in enumerate(layout.cuts):
            if cut is not None:
                self._dimensions.setdefault(cut[0], []).append(dimension)
        self._cuts = {
            side: tuple((layout.mesh[d], (layout.cuts[d] or (0, 1))[1]) for d in dimensions)
            for side, dimensions in self._dimensions.items()
        }
        places = product(*(range(count) for count in layout.mesh))
        self._place = dict(zip(layout.ranks, places, strict=True))
        self._pieces: dict[tuple[Shape, int], Piece] = {}

    def __contains__(self, rank: int) -> bool:
        return rank in self._place

    def piece(self, size: Shape, rank: int) -> Piece:
        known = self._pieces.get((size, rank))
        if known is None:
            known = self._pieces[size, rank] = self._piece(size, self._place[rank])
        return known

    def _piece(self, size: Shape, place: Sequence[int]) -> Piece:
        if self._cuts and max(self._cuts) >= len(size):
            raise ValueError(f"a tensor of {list(size)} has no side {max(self._cuts)}")
        sides = []
        for side, rows in enumerate(size):
            where = tuple(place[d] for d in self._dimensions.get(side, ()))
            sides.append(_runs(rows, self._cuts.get(side, ()), where))
        return Piece(
            tuple(runs[0].start if runs else rows for runs, rows in zip(sides, size, strict=True)),
            tuple(sum(run.length for run in runs) for runs in sides),
            tuple(sides),
        )

    def writer(self, name: str, size: Shape, rank: int) -> int:
        """Of the ranks that hold the same piece as this one."""
        return self._writer(name, self.piece(size, rank).sizes, list(self._place[rank]))

    def _writer(self, name: str, sizes: Shape, place: list[int]) -> int:
        """At this place of the dimensions that divide it."""
        if self._holders > 1:
            number = holder(name, math.prod(sizes), self._holders)
            for dimension in reversed(self._replicated):
                number, place[dimension] = divmod(number, self.layout.mesh[dimension])
        at = 0
        for count, coordinate in zip(self.layout.mesh, place, strict=True):
            at = at * count + coordinate
        return self.layout.ranks[at]

    def overlaps(self, name: str, size: Shape, wanted: Piece) -> Iterator[Overlap]:
        """The stored blocks that make up a piece, of a rank in this mesh or in any other."""
        found = [
            _side_overlaps(rows, self._cuts.get(side, ()), wanted.sides[side])
            for side, rows in enumerate(size)
        ]
        for blocks in product(*found):
            place = [0] * len(self.layout.mesh)
            for side, block in enumerate(blocks):
                for dimension, coordinate in zip(
                    self._dimensions.get(side, ()), block.place, strict=True
                ):
                    place[dimension] = coordinate
            sizes = tuple(block.whole for block in blocks)
            yield Overlap(
                self._writer(name, sizes, place),
                tuple(block.first for block in blocks),
                sizes,
                tuple(block.source for block in blocks),
                tuple(block.target for block in blocks),
                tuple(block.length for block in blocks),
            )


def holder(name: str, elements: int, holders: int) -> int:
    """Which of so many that hold a piece writes it: each knows it by itself."""
    spread = holders if elements >= SMALL else min(holders, FEW)
    return crc32(name.encode("utf-8", "surrogatepass")) % spread


def whole(size: Shape) -> Piece:
    """All of a tensor."""
    return block((0,) * len(size), size)


def block(offsets: Shape, sizes: Shape) -> Piece:
    sides = zip(offsets, sizes, strict=True)
    runs = tuple((RowRange(start, length, 0),) if length else () for start, length in sides)
    return Piece(offsets, sizes, runs)


# --- one side ----------------------------------------------------------------------------------


class _SideBlock(NamedTuple):
    place: tuple[int, ...]
    """in the dimensions of the mesh that divide this side"""
    first: int
    whole: int
    """the first row and the length of the stored piece"""
    source: int
    target: int
    length: int


@lru_cache(1 << 16)
def _runs(
    rows: int, cuts: tuple[tuple[int, int], ...], place: tuple[int, ...]
) -> tuple[RowRange, ...]:
    """Of the rank at this place, as torch divides: the mesh's first dimension first."""
    held = [(0, rows)] if rows else []
    for (count, factor), coordinate in zip(cuts, place, strict=True):
        have = sum(length for _, length in held)
        parts: list[tuple[int, int]] = []
        for number in range(min(factor, have)):
            start, end = _chunk(0, have, factor, number)
            parts += _between(held, *_chunk(start, end, count, coordinate))
        held = parts
    return tuple(_joined(held))


def _chunk(start: int, end: int, count: int, number: int) -> tuple[int, int]:
    """As torch.chunk divides: equal ones, then a shorter one, then empty ones."""
    each = -(-(end - start) // count)
    return min(start + number * each, end), min(start + (number + 1) * each, end)


def _between(held: list[tuple[int, int]], first: int, last: int) -> Iterator[tuple[int, int]]:
    """(start, length): of rows in several runs, those from the first to before the last."""
    passed = 0
    for start, length in held:
        low, high = max(first - passed, 0), min(last - passed, length)
        if low < high:
            yield start + low, high - low
        passed += length


def _joined(held: list[tuple[int, int]]) -> Iterator[RowRange]:
    at = 0
    pending: tuple[int, int] | None = None
    for start, length in held:
        if pending and sum(pending) == start:
            pending = (pending[0], pending[1] + length)
            continue
        if pending:
            yield RowRange(*pending, at)
            at += pending[1]
        pending = (start, length)
    if pending:
        yield RowRange(*pending, at)


class _SideTable(NamedTuple):
    """All runs of all places, in the order of their rows."""

    starts: list[int]
    blocks: list[tuple[RowRange, tuple[int, ...], int, int]]
    """the run, whose it is, and the first row and the length of the piece that it is in"""


@lru_cache(1 << 12)
def _table(rows: int, cuts: tuple[tuple[int, int], ...]) -> _SideTable:
    blocks = []
    for place in product(*(range(count) for count, _ in cuts)):
        runs = _runs(rows, cuts, place)
        length = sum(run.length for run in runs)
        blocks += [(run, place, runs[0].start, length) for run in runs]
    blocks.sort()
    return _SideTable([entry[0].start for entry in blocks], blocks)


def _side_overlaps(
    rows: int, cuts: tuple[tuple[int, int], ...], wanted: tuple[RowRange, ...]
) -> list[_SideBlock]:
    table = _table(rows, cuts)
    found = []
    for start, length, at in wanted:
        number = max(bisect_right(table.starts, start) - 1, 0)
        while number < len(table.blocks) and table.starts[number] < start + length:
            run, place, first, whole_length = table.blocks[number]
            low, high = max(start, run.start), min(start + length, run.start + run.length)
            if low < high:
                source, target = run.at + low - run.start, at + low - start
                found.append(_SideBlock(place, first, whole_length, source, target, high - low))
            number += 1
    return found
