"""The order of an epoch is a permutation, well mixed, and never changes."""

from __future__ import annotations

import math
from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.epoch import EpochOrder

seeds = st.integers(-(2**70), 2**70)


@given(length=st.integers(1, 3000), seed=seeds, epoch=st.integers(0, 10**6))
def test_every_sample_has_one_position(length: int, seed: int, epoch: int) -> None:
    order = EpochOrder(length, seed=seed, epoch=epoch, shuffle=True)
    assert sorted(order[place] for place in range(length)) == list(range(length))


@given(length=st.integers(1, 10**13), seed=seeds, data=st.data())
def test_data_of_any_size(length: int, seed: int, data: st.DataObject) -> None:
    order = EpochOrder(length, seed=seed, epoch=0, shuffle=True)
    places = data.draw(st.sets(st.integers(0, length - 1), max_size=20))
    found = {order[place] for place in places}
    assert len(found) == len(places)
    assert all(0 <= sample < length for sample in found)


def test_it_stays_as_it_is() -> None:
    """Saved places would mean other samples: a change here must raise order.VERSION."""
    small = EpochOrder(10, seed=1, epoch=0, shuffle=True)
    large = EpochOrder(10**9, seed=2, epoch=3, shuffle=True)
    assert [small[place] for place in range(10)] == SMALL
    assert [large[place] for place in range(5)] == LARGE


def test_unshuffled_is_the_order_of_the_data() -> None:
    order = EpochOrder(7, seed=1, epoch=2, shuffle=False)
    assert [order[place] for place in range(7)] == list(range(7))


@pytest.mark.parametrize("place", [-1, 7])
def test_there_is_nothing_outside_the_data(place: int) -> None:
    with pytest.raises(IndexError):
        EpochOrder(7, seed=1, epoch=0, shuffle=True)[place]


def test_seed_and_epoch_make_another_order() -> None:
    def first(seed: int, epoch: int) -> tuple[int, ...]:
        order = EpochOrder(1000, seed=seed, epoch=epoch, shuffle=True)
        return tuple(order[place] for place in range(50))

    keys = [(1, 0), (0, 1), (1, 1), (11, 0), (-1, 0)]
    assert len({first(*key) for key in keys}) == len(keys)


@pytest.mark.parametrize("length", [5, 12, 100, 1000])
def test_neighbours_land_anywhere(length: int) -> None:
    """Where places 0 and 1 go, over many seeds, beside what chance would do: a chi-square test."""
    trials, cells = 4000, min(length, 10)
    seen: Counter[tuple[int, int]] = Counter()
    for seed in range(trials):
        order = EpochOrder(length, seed=seed, epoch=0, shuffle=True)
        seen[order[0] * cells // length, order[1] * cells // length] += 1
    members = Counter(sample * cells // length for sample in range(length))
    pairs = {
        (one, other): members[one] * (members[other] - (one == other))
        for one in range(cells)
        for other in range(cells)
    }
    expected = {cell: trials * n / (length * (length - 1)) for cell, n in pairs.items() if n}
    assert set(seen) <= set(expected)
    chi = sum((seen[cell] - count) ** 2 / count for cell, count in expected.items())
    freedom = len(expected) - 1
    assert abs(chi - freedom) < 4 * math.sqrt(2 * freedom)


SMALL = [2, 0, 1, 9, 8, 7, 5, 3, 4, 6]
LARGE = [880831828, 284954017, 65858851, 481979657, 907929011]
