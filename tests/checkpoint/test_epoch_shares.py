"""A global batch is shared out fairly among any number of ranks."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.epoch import BatchShares, micro_batches
from holdfast.errors import ConfigError
from tests.checkpoint.sampler_ranks import sampler

sizes = st.tuples(st.integers(1, 600), st.integers(1, 64), st.integers(1, 16))


@given(sizes=sizes, batches=st.integers(1, 4), data=st.data())
def test_shares_are_fair(sizes: tuple[int, int, int], batches: int, data: st.DataObject) -> None:
    """For any sizes: every sample counts once, every rank makes as many passes."""
    batch, world_size, micro = sizes
    number = data.draw(st.integers(0, batches - 1))
    ranks = [
        BatchShares(batch * batches, batch, micro, r, world_size, False) for r in range(world_size)
    ]
    cuts = [rank.cut(number) for rank in ranks]
    counted = [[part for part in cut if not part.is_repeat] for cut in cuts]
    places = [place for cut in counted for part in cut for place in part.places]
    assert places == list(range(number * batch, (number + 1) * batch))
    assert {len(cut) for cut in cuts} == {micro_batches(batch, world_size, micro)}
    everything = [part for cut in cuts for part in cut]
    lengths = {len(part.places) for part in everything}
    assert min(lengths) >= 1
    assert max(lengths) <= micro
    assert all(place in range(number * batch, (number + 1) * batch)
               for part in everything for place in part.places)  # fmt: skip
    shares = [sum(len(part.places) for part in cut) for cut in counted]
    assert max(shares) - min(shares) <= 1
    weights = [[rank.weight(number, part) for part in cut]
               for rank, cut in zip(ranks, cuts, strict=True)]  # fmt: skip
    assert sum(map(sum, weights)) == pytest.approx(world_size)
    assert [part.is_repeat for part in everything] == [not w for row in weights for w in row]
    repeats = sum(part.is_repeat for part in everything)
    assert ranks[0].repeated == pytest.approx(repeats / len(everything))


@pytest.mark.parametrize(
    ("batch", "ranks", "micro", "says"),
    [
        (512, 64, 1, ""),
        (512, 56, 1, "9% of all passes repeat a sample with weight 0, because ranks have"),
        (512, 56, 1, "different shares; 504 or 560 would need none"),
        (512, 56, 2, ""),
        (3, 4, 1, "25% of all passes"),
        (3, 4, 1, "; 4 would need none"),
    ],
)  # fmt: skip
def test_what_is_wasted_is_reported(
    batch: int, ranks: int, micro: int, says: str, capfd: pytest.CaptureFixture[str]
) -> None:
    sampler(0, ranks, global_batch_size=batch, micro_batch_size=micro, length=5 * batch + 1)
    said = capfd.readouterr().err
    assert says in said
    assert bool(said) == bool(says)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"length": 9, "drop_last": True}, ["9 samples are less than global_batch_size=10"]),
        ({"length": 0}, ["dataset must have at least 1 sample, got 0"]),
        ({"global_batch_size": 0}, ["global_batch_size must be > 0, got 0"]),
        ({"micro_batch_size": 0}, ["micro_batch_size must be > 0, got 0"]),
        ({"rank": 4, "world_size": 4}, ["rank 4 is out of range for world_size 4"]),
        ({"length": iter([])}, ["has no length", "StatefulDataLoader"]),
    ],
)  # fmt: skip
def test_impossible_sizes_are_refused(given: dict[str, Any], words: list[str]) -> None:
    with pytest.raises(ConfigError) as refused:
        sampler(**given)
    text = f"{refused.value.sentence} {refused.value.hint}"
    assert [word for word in words if word not in text] == [], text
