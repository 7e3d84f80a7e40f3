"""Pieces become whole tensors again, however they were cut; nothing missing is passed over."""

from __future__ import annotations

from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.sharded import load
from holdfast.checkpoint.sharded_index import ShardIndex
from holdfast.checkpoint.sharded_plan import piece_name
from holdfast.checkpoint.sharded_tree import TensorToFill
from holdfast.checkpoint.staging import tensor_file, write_directly
from holdfast.checkpoint.tensors import NamedTensor, dtype_name
from holdfast.checkpoint.tree import DamagedTreeError
from holdfast.errors import ConfigError

Listed = dict[str, list[Any]]
"""an index as the first release wrote it"""


def save(folder: Path, whole: torch.Tensor, cuts: list[list[int]]) -> Listed:
    """Cut at these places of each side; one rank for each piece."""
    sides = [
        list(pairwise([0, *sorted(set(cut)), end]))
        for cut, end in zip(cuts, whole.shape, strict=True)
    ]
    parts = []
    for rank, ranges in enumerate(product(*sides)):
        piece = whole
        for axis, (start, end) in enumerate(ranges):
            piece = piece.narrow(axis, start, end - start)
        offsets, sizes = tuple(start for start, _ in ranges), tuple(piece.shape)
        name = piece_name("w", tuple(whole.shape), offsets, sizes)
        write_directly(str(folder / tensor_file(rank)), [NamedTensor(name, piece.contiguous())])
        parts.append([rank, offsets, sizes])
    return {"w": [dtype_name(whole.dtype), tuple(whole.shape), parts]}


@st.composite
def cut_tensors(draw: Any) -> tuple[torch.Tensor, list[list[int]]]:
    shape = draw(st.lists(st.integers(1, 6), max_size=3))
    dtype = draw(st.sampled_from([torch.float32, torch.bfloat16, torch.int64, torch.complex64]))
    cuts = [draw(st.lists(st.integers(1, n - 1), max_size=2)) if n > 1 else [] for n in shape]
    return torch.arange(torch.Size(shape).numel()).reshape(shape).to(dtype), cuts


@given(cut_tensors())
def test_however_it_was_cut_the_whole_comes_back(
    tmp_path_factory: pytest.TempPathFactory, cut: tuple[torch.Tensor, list[list[int]]]
) -> None:
    folder = tmp_path_factory.mktemp("cut")
    index = ShardIndex.from_node(save(folder, *cut))
    tied, other = (torch.full_like(cut[0], 99) for _ in range(2))
    load(str(folder), index, {"one": TensorToFill("w", tied), "two": TensorToFill("w", other)})
    assert torch.equal(tied, cut[0])
    assert torch.equal(other, cut[0])


WHOLE = torch.arange(12.0).reshape(4, 3)


def damaged(index: Listed, **changes: Any) -> ShardIndex:
    dtype, size, parts = index["w"]
    return ShardIndex.from_node(
        {
            "w": [
                changes.get("dtype", dtype),
                changes.get("size", size),
                changes.get("parts", parts),
            ]
        }
    )


@pytest.mark.parametrize(
    ("changes", "error", "words"),
    [
        ({"parts": [[0, (0, 0), (2, 3)]]}, DamagedTreeError, "does not hold all of w"),
        ({"parts": []}, DamagedTreeError, "does not hold all of w"),
        ({"size": (5, 3)}, ConfigError, "does not fit this model"),
        ({"dtype": "float128"}, DamagedTreeError, "no dtype"),
        (
            {"parts": [[0, (0, 0), (3, 3)], [1, (3, 0), (1, 3)]]},
            DamagedTreeError,
            "is not in its file|is not as large",
        ),
    ],
)
def test_nothing_is_touched_unless_all_of_it_is_there(
    tmp_path: Path, changes: dict[str, Any], error: type[Exception], words: str
) -> None:
    index = damaged(save(tmp_path, WHOLE, [[2], []]), **changes)
    into = torch.full_like(WHOLE, 99)
    with pytest.raises(error, match=words):
        load(str(tmp_path), index, {"w": TensorToFill("w", into)})
    if "parts" not in changes or len(changes["parts"]) < 2:
        assert bool((into == 99).all())


def test_a_name_that_was_never_saved_is_an_error(tmp_path: Path) -> None:
    index = ShardIndex.from_node(save(tmp_path, WHOLE, [[], []]))
    with pytest.raises(DamagedTreeError, match="'v' is not in the index"):
        load(str(tmp_path), index, {"w": TensorToFill("v", WHOLE.clone())})


@pytest.mark.parametrize(
    "node",
    [
        {"layouts": [[[2], [0], [None]]], "tensors": {}},
        {"layouts": [], "tensors": {"w": ["float32", [4, 3], 0]}},
        {"layouts": [[[1], [0], [[0, 1]]]], "tensors": {"w": ["float32", [4, 3], -1]}},
        {"layouts": [[[1], [0], [[0, 10**12]]]], "tensors": {"w": "float32"}},
        {"w": ["float32", [4, 3], [[0, "x"]]]},
    ],
)
def test_an_index_that_nobody_wrote_is_damaged(node: Any) -> None:
    with pytest.raises(DamagedTreeError):
        ShardIndex.from_node(node)
