"""The digest of the weights: the same for the same bits, another one for any other bit."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from holdfast.rank.witness import weights


def digest(*tensors: torch.Tensor) -> str:
    held = weights.local_parts(torch, tensors)
    return weights.digest([int(one) for one in weights.sums(torch, held)])


def made(seed: int) -> list[torch.Tensor]:
    torch.manual_seed(seed)
    return [torch.randn(7, 5), torch.randn(11).bfloat16(), torch.randn(4, 3).t(), torch.ones(())]


@given(seed=st.integers(0, 1000), bit=st.integers(0, 31), at=st.integers(0, 34))
def test_one_bit_is_seen(seed: int, bit: int, at: int) -> None:
    held, other = made(seed), made(seed)
    assert digest(*held) == digest(*other)
    other[0].view(torch.int32).view(-1)[at] ^= (1 << bit) if bit < 31 else -(1 << 31)
    assert digest(*held) != digest(*other)


def test_what_holds_nothing_or_is_elsewhere_is_left_out() -> None:
    assert digest() == ""
    assert digest(torch.empty(0), torch.empty(3, device="meta")) == ""


def test_a_parameter_that_two_modules_share_counts_once() -> None:
    one = torch.ones(3)
    assert digest(one, one) == digest(one)


def test_of_more_than_the_budget_a_part_of_every_tensor_is_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(weights.BUDGET, "cpu", 64 << 10)
    large = [torch.zeros(200_000), torch.zeros(300_000), torch.zeros(10)]
    whole = digest(*large)
    for one in large:
        one[:10] += 1
        changed = digest(*large)
        assert changed != whole
        whole = changed
    assert sum(weights._sample(one, 32).numel() for one in large) * 4 <= 64 << 10


def test_values_are_spread_over_all_parameters() -> None:
    held = [torch.full((10, 2), float(number)) for number in range(32)]
    assert [float(one) for one in weights.some_values(held)] == list(range(0, 32, 2))
    assert len(weights.some_values(held[:1])) == weights.VALUES
    assert weights.some_values([]) == []
    assert len(weights.some_values([torch.ones(6, 4).t()])) == weights.VALUES
