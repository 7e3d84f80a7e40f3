"""A global batch is shared out fairly, or refused with the numbers that would do."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.checkpoint.epoch import BatchShares, fits, micro_batches
from holdfast.errors import ConfigError
from tests.checkpoint.sampler_ranks import sampler

sizes = st.tuples(st.integers(1, 200), st.integers(1, 24), st.integers(1, 16))


@given(sizes=sizes, batches=st.integers(1, 4), data=st.data())
def test_shares_are_fair(sizes: tuple[int, int, int], batches: int, data: st.DataObject) -> None:
    batch, world_size, micro = sizes
    assume(fits(batch, world_size, micro))
    number = data.draw(st.integers(0, batches - 1))
    ranks = [
        BatchShares(batch * batches, batch, micro, r, world_size, False) for r in range(world_size)
    ]
    cuts = [rank.cut(number) for rank in ranks]
    places = [place for cut in cuts for part in cut for place in part]
    assert places == list(range(number * batch, (number + 1) * batch))
    assert {len(cut) for cut in cuts} == {micro_batches(batch, world_size, micro)}
    lengths = {len(part) for cut in cuts for part in cut}
    assert min(lengths) >= 1
    assert max(lengths) <= micro
    shares = [sum(len(part) for part in cut) for cut in cuts]
    assert max(shares) - min(shares) <= 1
    assert all(max(map(len, cut)) - min(map(len, cut)) <= 1 for cut in cuts)
    weights = sum(rank.weight(number, part) for rank, cut in zip(ranks, cuts, strict=True)
                  for part in cut)  # fmt: skip
    assert weights == pytest.approx(world_size)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (
            {"global_batch_size": 3, "world_size": 4},
            ["each of 4 ranks a sample", "global_batch_size=4"],
        ),
        (
            {"global_batch_size": 5, "world_size": 2, "micro_batch_size": 1, "length": 50},
            ["some of 2 ranks 3 samples and some 2", "global_batch_size=4, global_batch_size=6",
             "micro_batch_size=2"],
        ),
        (
            {"length": 101, "world_size": 2},
            ["last global batch of an epoch has 1 of 10", "drop_last=True", "global_batch_size="],
        ),
        ({"length": 9, "drop_last": True}, ["9 samples are less than global_batch_size=10"]),
        ({"length": 0}, ["dataset must have at least 1 sample, got 0"]),
        ({"global_batch_size": 0}, ["global_batch_size must be > 0, got 0"]),
        ({"micro_batch_size": 0}, ["micro_batch_size must be > 0, got 0"]),
        ({"rank": 4, "world_size": 4}, ["rank 4 is out of range for world_size 4"]),
        ({"length": iter([])}, ["has no length", "StatefulDataLoader"]),
    ],
)  # fmt: skip
def test_impossible_sizes_are_refused_with_possible_ones(
    given: dict[str, Any], words: list[str]
) -> None:
    with pytest.raises(ConfigError) as refused:
        sampler(**given)
    text = f"{refused.value.sentence} {refused.value.hint}"
    assert [word for word in words if word not in text] == [], text


@given(sizes=sizes, length=st.integers(1, 2000))
def test_what_is_proposed_is_possible(sizes: tuple[int, int, int], length: int) -> None:
    batch, world_size, micro = sizes
    try:
        sampler(0, world_size, global_batch_size=batch, micro_batch_size=micro, length=length)
    except ConfigError as refused:
        numbers = [word.strip(",") for word in refused.hint.split() if "_batch=" in word]
        for name, value in (number.split("=") for number in numbers):
            proposed = {"global_batch_size": batch, "micro_batch_size": micro} | {name: int(value)}
            assert fits(proposed["global_batch_size"], world_size, proposed["micro_batch_size"])
            if "last global batch" in refused.sentence:
                sampler(0, world_size, length=length, **proposed)
