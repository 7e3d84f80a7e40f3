"""The copy is shared between threads: every byte once, each thread the same."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import copying
from holdfast.checkpoint.copying import SMALL, Block, shares
from holdfast.checkpoint.tensors import Named


@given(st.lists(st.integers(SMALL, 40 * SMALL), max_size=12), st.integers(1, 9))
def test_every_byte_is_in_one_share(sizes: list[int], count: int) -> None:
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    blocks = [
        Block(start, start + (1 << 40), size) for start, size in zip(starts, sizes, strict=True)
    ]
    found = shares(blocks, count)
    pieces = [piece for share in found for piece in share]
    assert [piece.target for piece in pieces] == [
        sum(piece.size for piece in pieces[:number]) for number in range(len(pieces))
    ]
    assert sum(piece.size for piece in pieces) == sum(sizes)
    assert all(piece.source - piece.target == 1 << 40 for piece in pieces)
    assert 1 <= len(found) <= count
    work = [sum(piece.size for piece in share) for share in found]
    assert max(work) <= max(SMALL, -(-sum(sizes) // count))


@pytest.mark.parametrize(
    ("tensors", "expected"),
    [
        pytest.param([torch.zeros(1 << 20)] * 3, 3, id="large"),
        pytest.param([torch.zeros(1 << 22)], 3, id="one that is cut"),
        pytest.param([torch.zeros(1000)] * 300, 1, id="small"),
        pytest.param([torch.zeros(1 << 10, 1 << 10).t()] * 3, 1, id="not contiguous"),
        pytest.param([], 1, id="none"),
    ],
)
def test_only_large_plain_tensors_are_shared_between_threads(
    tensors: list[torch.Tensor], expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen: list[int] = []

    def noted(blocks: Sequence[Block]) -> None:
        seen.append(threading.get_ident())
        move(blocks)

    move = copying._move
    monkeypatch.setattr(copying, "_move", noted)
    views = [torch.ones(tensor.shape) for tensor in tensors]
    copying.copy(views, [Named("t", tensor) for tensor in tensors], threads=3)
    assert len(seen) == expected
    assert all(not view.any() for view in views)


def test_threads_are_shared_between_the_ranks_of_a_machine() -> None:
    alone = copying.threads_for(1)
    assert 1 <= alone <= copying.MOST
    assert copying.threads_for(10_000) == 1
