"""The sum over samples: the same in any order and on any number of ranks, another one when any bit
of any sample is another."""

from __future__ import annotations

import collections
from typing import Any

import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.rank.witness import samples

DTYPES = [
    torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
    torch.uint8, torch.int8, torch.bool, torch.complex64,
]  # fmt: skip


def total(tensor: torch.Tensor, name: str = "x") -> int:
    return int(samples.sum_of_digests(torch, name, tensor)) % 2**64


def batch(seed: int, rows: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    made = torch.randint(-100, 100, (rows, 3, 5), generator=torch.Generator().manual_seed(seed))
    return made.to(dtype)


@given(
    dtype=st.sampled_from(DTYPES),
    seed=st.integers(0, 10**6),
    rows=st.integers(1, 12),
    ranks=st.integers(1, 4),
)
def test_neither_order_nor_ranks_matter(
    dtype: torch.dtype, seed: int, rows: int, ranks: int
) -> None:
    whole = batch(seed, rows, dtype)
    shuffled = whole[torch.randperm(rows, generator=torch.Generator().manual_seed(seed))]
    shares = [shuffled[rank::ranks] for rank in range(ranks)]
    assert sum(total(share) for share in shares) % 2**64 == total(whole)


@given(seed=st.integers(0, 10**6), rows=st.just(12), at=st.integers(0, 179), bit=st.integers(0, 31))
def test_every_bit_matters(seed: int, rows: int, at: int, bit: int) -> None:
    whole = batch(seed, rows)
    other = whole.clone()
    flat = other.view(torch.int32).view(-1)
    flat[at % len(flat)] ^= (1 << bit) if bit < 31 else -(1 << 31)
    assert total(other) != total(whole)


@given(seed=st.integers(0, 10**6))
def test_what_is_exchanged_between_samples_or_within_one_is_seen(seed: int) -> None:
    whole = batch(seed, 4)
    whole[0, 0, 0], whole[1, 0, 0], whole[0, 0, 1] = 1000, 2000, 3000
    between, within = whole.clone(), whole.clone()
    between[0, 0, 0], between[1, 0, 0] = 2000, 1000
    within[0, 0, 0], within[0, 0, 1] = 3000, 1000
    assert len({total(whole), total(between), total(within)}) == 3


def test_repeated_left_out_and_renamed_samples_are_seen() -> None:
    whole = batch(1, 4)
    twice = torch.cat([whole, whole[:1]])
    assert len({total(whole), total(twice), total(whole[1:]), total(whole, "y")}) == 4


def test_rows_that_are_long_are_read_in_part_whatever_their_number() -> None:
    wide = torch.arange(3 * samples.LONGEST_ROW * 2, dtype=torch.int16).view(3, -1)
    assert sum(total(row[None]) for row in wide) % 2**64 == total(wide)


class TokenBatch(collections.UserDict[str, Any]):
    """As transformers.BatchEncoding is."""


def test_tensors_are_found_in_whatever_a_script_passes() -> None:
    x, y = torch.ones(4, 2), torch.ones(4)
    grown = torch.ones(4, requires_grad=True) * 2
    cases: list[tuple[Any, Any, list[str]]] = [
        ((x, y), {}, [".0.0", ".0.1"]),
        ((), {"labels": y, "input_ids": x}, [".1.input_ids", ".1.labels"]),
        ((TokenBatch(input_ids=x),), None, [".0.0.input_ids"]),
        (([x, {"deep": (y,)}],), {}, [".0.0.0", ".0.0.1.deep.0"]),
        ((x, torch.ones(7, 7), torch.tensor(3.0), None, "text"), {}, [".0.0"]),
        ((grown, y), {}, [".0.1"]),
        ((), {}, []),
    ]
    for args, kwargs, expected in cases:
        assert [name for name, _ in samples.tensors(torch, args, kwargs)] == expected
