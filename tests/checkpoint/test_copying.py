"""The copy is shared between threads: every byte once, small tensors by one thread."""

from __future__ import annotations

import threading

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import copying
from holdfast.checkpoint.copying import SMALL, CopyBlock, cut, pieces
from holdfast.checkpoint.cores import MOST, threads_for
from holdfast.checkpoint.tensors import NamedTensor


@given(st.lists(st.integers(SMALL, 40 * SMALL), max_size=12), st.integers(1, 9))
def test_every_byte_is_in_one_piece(sizes: list[int], threads: int) -> None:
    starts = [sum(sizes[:number]) for number in range(len(sizes))]
    blocks = [
        CopyBlock(start, start + (1 << 40), size) for start, size in zip(starts, sizes, strict=True)
    ]
    found = pieces(blocks, threads)
    assert [piece.size for piece in found] == sorted((p.size for p in found), reverse=True)
    in_order = sorted(found)
    assert [piece.target for piece in in_order] == [
        sum(piece.size for piece in in_order[:number]) for number in range(len(in_order))
    ]
    assert sum(piece.size for piece in found) == sum(sizes)
    assert all(piece.source - piece.target == 1 << 40 for piece in found)
    assert all(piece.size <= max(SMALL, sum(sizes) // threads) for piece in found)


@given(st.integers(0, 500), st.integers(1, 500), st.integers(1, 99))
def test_no_part_crosses_a_border_and_none_is_missing(start: int, size: int, apart: int) -> None:
    parts = cut(start, size, apart)
    assert [begin for begin, _ in parts] == [0, *(end for _, end in parts[:-1])]
    assert parts[-1][1] == size
    assert all(begin < end for begin, end in parts)
    assert all((start + begin) // apart == (start + end - 1) // apart for begin, end in parts)


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
    started: list[threading.Thread] = []

    def start(thread: threading.Thread) -> None:
        started.append(thread)
        begin(thread)

    begin = threading.Thread.start
    monkeypatch.setattr(threading.Thread, "start", start)
    views = [torch.ones(tensor.shape) for tensor in tensors]
    copying.copy(views, [NamedTensor("t", tensor) for tensor in tensors], threads=3)
    assert 1 + len(started) == expected
    assert not any(thread.is_alive() for thread in started)
    assert all(not view.any() for view in views)


def test_threads_are_shared_between_the_ranks_of_a_machine() -> None:
    alone = threads_for(1)
    assert 1 <= alone <= MOST
    assert threads_for(10_000) == 1
