"""Every piece of every layout: where torch has it, written by one rank, found by any other."""

from __future__ import annotations

import math
from itertools import product
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.distributed.tensor import Shard
from torch.distributed.tensor.placement_types import _StridedShard

from holdfast.checkpoint.sharded_layout import FEW, SMALL, LayoutGrid, ShardLayout, holder, whole

Shape = tuple[int, ...]


@st.composite
def layouts(draw: Any, sides: int) -> ShardLayout:
    mesh = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=3)))
    cut = st.none() | st.tuples(st.integers(0, sides - 1), st.sampled_from([1, 1, 2, 3]))
    cuts = tuple(draw(cut) if sides else None for _ in mesh)
    first = draw(st.integers(0, 3))
    ranks = draw(st.permutations(range(first, first + math.prod(mesh))))
    return ShardLayout(mesh, tuple(ranks), cuts)


@st.composite
def cases(draw: Any) -> tuple[Shape, ShardLayout, ShardLayout]:
    size = tuple(draw(st.lists(st.integers(0, 9), max_size=3)))
    return size, draw(layouts(len(size))), draw(layouts(len(size)))


def held(whole_tensor: torch.Tensor, grid: LayoutGrid, rank: int) -> torch.Tensor:
    """By our arithmetic."""
    piece = grid.piece(tuple(whole_tensor.shape), rank)
    for axis, runs in enumerate(piece.sides):
        rows = [row for run in runs for row in range(run.start, run.start + run.length)]
        whole_tensor = whole_tensor.index_select(axis, torch.tensor(rows, dtype=torch.long))
    return whole_tensor


def by_torch(whole_tensor: torch.Tensor, layout: ShardLayout, place: tuple[int, ...]) -> Any:
    for cut, count, coordinate in zip(layout.cuts, layout.mesh, place, strict=True):
        if cut is None:
            continue
        side, factor = cut
        placement: Any = Shard(side) if factor == 1 else _StridedShard(side, split_factor=factor)
        parts, _ = placement._split_tensor(whole_tensor, count, with_padding=False)
        whole_tensor = parts[coordinate]
    return whole_tensor


@given(cases())
def test_pieces_are_where_torch_has_them(case: tuple[Shape, ShardLayout, ShardLayout]) -> None:
    size, layout, _ = case
    grid, values = LayoutGrid(layout), torch.arange(math.prod(size)).reshape(size)
    places = product(*map(range, layout.mesh))
    for rank, place in zip(layout.ranks, places, strict=True):
        expected = by_torch(values, layout, place)
        found = held(values, grid, rank)
        assert found.numel() == expected.numel()
        assert torch.equal(found.flatten(), expected.flatten())


@given(cases())
def test_every_element_is_written_once_and_fills_any_other_layout(
    case: tuple[Shape, ShardLayout, ShardLayout],
) -> None:
    size, then, now = case
    values = torch.arange(math.prod(size)).reshape(size)
    saved, loading = LayoutGrid(then), LayoutGrid(now)
    written = torch.zeros(size, dtype=torch.int64)
    files: dict[tuple[int, Shape], torch.Tensor] = {}
    for rank in then.ranks:
        if saved.writer("w", size, rank) == rank and not saved.piece(size, rank).is_empty:
            mine = held(values, saved, rank)
            files[rank, saved.piece(size, rank).offsets] = mine
            written.flatten()[mine.flatten()] += 1
    assert bool((written == 1).all())
    for rank in now.ranks:
        piece = loading.piece(size, rank)
        into = torch.full(piece.sizes, -1)
        for each in saved.overlaps("w", size, piece):
            source = files[each.rank, each.offsets]
            assert tuple(source.shape) == each.sizes
            target = into
            for axis, length in enumerate(each.lengths):
                source = source.narrow(axis, each.source[axis], length)
                target = target.narrow(axis, each.target[axis], length)
            assert bool((target == -1).all()), "filled once"
            target.copy_(source)
        assert torch.equal(into, held(values, loading, rank))


@pytest.mark.parametrize("elements", [1, SMALL])
def test_what_many_hold_is_spread_but_small_pieces_over_a_few_files_only(elements: int) -> None:
    writers = {holder(f"layers.{i}.weight", elements, 1024) for i in range(2000)}
    if elements >= SMALL:
        assert len(writers) > 500
    else:
        assert writers == set(range(FEW))


@pytest.mark.parametrize(
    ("mesh", "ranks", "cuts"),
    [((2,), (0,), (None,)), ((1,), (0,), ()), ((1,), (0,), ((-1, 1),)), ((1,), (0,), ((0, 0),))],
)
def test_layouts_that_nobody_wrote_are_refused(mesh: Shape, ranks: Shape, cuts: Any) -> None:
    with pytest.raises(ValueError, match="a mesh"):
        LayoutGrid(ShardLayout(mesh, ranks, cuts))


def test_all_of_a_tensor_is_one_piece() -> None:
    grid = LayoutGrid(ShardLayout((2,), (0, 1), ((0, 1),)))
    blocks = list(grid.overlaps("w", (5, 2), whole((5, 2))))
    assert [(each.rank, each.target, each.lengths) for each in blocks] == [
        (0, (0, 0), (3, 2)),
        (1, (3, 0), (2, 2)),
    ]
