"""Every sample once, in batches of the planned size, whatever the ranks; the place is kept."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.utils.data import DataLoader

from holdfast.checkpoint.sampler import Sampler
from holdfast.errors import ConfigError
from tests.checkpoint.sampler_ranks import PlainLoader, sampler, train

# --- the order through restarts ----------------------------------------------------------------


@given(
    worlds=st.lists(st.integers(1, 9) | st.sampled_from([1, 2, 48, 56, 64]), min_size=1,
                    max_size=4),
    length=st.integers(1, 300),
    batch=st.integers(1, 70),
    micro=st.integers(1, 4),
    data=st.data(),
)  # fmt: skip
def test_another_world_continues_in_the_same_order(
    worlds: list[int], length: int, batch: int, micro: int, data: st.DataObject
) -> None:
    """Stopped anywhere and resumed with any number of ranks: each global batch holds the same
    samples as in a job of one rank that was never stopped."""
    given = {"length": length, "global_batch_size": batch, "micro_batch_size": micro}
    alone = sampler(**given)
    whole = train([alone], alone.batches)
    seen: list[list[int]] = []
    saved = alone.state_dict() | {"epoch": 0, "position": 0}
    for number, world_size in enumerate(worlds):
        ranks = [sampler(rank, world_size, **given) for rank in range(world_size)]
        for one in ranks:
            one.load_state_dict(saved)
        left = alone.batches - len(seen)
        last = number == len(worlds) - 1
        seen += train(ranks, left if last else data.draw(st.integers(0, left)))
        assert len({str(one.state_dict()) for one in ranks}) == 1
        saved = ranks[0].state_dict()
    assert [sorted(batch) for batch in seen] == [sorted(batch) for batch in whole]
    assert sorted(sample for batch in seen for sample in batch) == list(range(length))


def test_four_two_three_four() -> None:
    seen: list[list[int]] = []
    saved: dict[str, Any] = sampler(length=1200, global_batch_size=24).state_dict()
    for world_size in (4, 2, 3, 4):
        ranks = [
            sampler(rank, world_size, length=1200, global_batch_size=24)
            for rank in range(world_size)
        ]
        for one in ranks:
            one.load_state_dict(saved)
        seen += train(ranks, 12 if len(seen) < 36 else 14)
        saved = ranks[0].state_dict()
    assert sorted(sample for batch in seen for sample in batch) == list(range(1200))
    assert {len(batch) for batch in seen} == {24}


def test_ranks_are_those_of_the_job(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RANK", "2")
    monkeypatch.setenv("WORLD_SIZE", "4")
    shares = Sampler(100, global_batch_size=20, micro_batch_size=5).shares
    assert (shares.rank, shares.world_size) == (2, 4)
    with pytest.raises(ConfigError, match="both"):
        Sampler(100, global_batch_size=20, micro_batch_size=5, rank=1)


# --- following ---------------------------------------------------------------------------------


def test_the_data_position_is_that_of_training_not_of_the_loader() -> None:
    one = sampler()
    loop = one.follow(PlainLoader(one))
    places = []
    for _ in range(9):
        next(loop)
        places.append((one.state_dict()["position"], one.is_last_micro_batch))
    assert places == [(0, False)] * 3 + [(1, True)] + [(1, False)] * 3 + [(2, True), (2, False)]


def test_a_loop_left_early_continues_where_it_was() -> None:
    one = sampler()
    first = train([one], 3)
    assert one.position == 3
    rest = train([one], 7)
    again = sampler()
    assert first + rest == train([again], 10)


def test_within_a_global_batch_it_is_repeated_as_a_whole() -> None:
    one = sampler()
    loop = one.follow(PlainLoader(one))
    given = [next(loop) for _ in range(6)]
    assert not one.is_last_micro_batch
    again = sampler()
    again.load_state_dict(one.state_dict())
    assert [next(again.follow(PlainLoader(again)))] == given[4:5]


def test_epochs_follow_by_themselves_and_by_number() -> None:
    counted, left = sampler(), sampler()
    by_number = []
    for epoch in range(3):
        counted.set_epoch(epoch)
        by_number.append(list(counted.follow(PlainLoader(counted))))
    assert by_number == [list(left.follow(PlainLoader(left))) for _ in range(3)]
    assert by_number[0] != by_number[1]
    assert (left.epoch, left.position) == (3, 0)
    assert len(by_number[0]) == len(left)


def test_resumed_at_the_very_end_of_an_epoch() -> None:
    """The last save of an epoch comes before the loop has ended."""
    one, again = sampler(), sampler()
    for _ in one.follow(PlainLoader(one)):
        saved = one.state_dict()
    assert saved["position"] == one.batches
    again.load_state_dict(saved)
    again.set_epoch(0)
    assert list(again.follow(PlainLoader(again))) == []
    again.set_epoch(1)
    assert list(again.follow(PlainLoader(again))) == list(one.follow(PlainLoader(one)))


def test_another_epoch_begins_at_its_beginning() -> None:
    one = sampler()
    train([one], 3)
    one.set_epoch(0)
    assert one.position == 3
    one.set_epoch(5)
    assert (one.epoch, one.position) == (5, 0)


def test_an_epoch_changed_inside_the_loop_is_refused() -> None:
    one = sampler()
    loop = one.follow(PlainLoader(one))
    next(loop)
    one.set_epoch(3)
    with pytest.raises(ConfigError, match="inside the loop"):
        next(loop)


@pytest.mark.parametrize(("count", "words"), [(39, "ended in global batch 9"), (41, "more")])
def test_a_loader_that_gives_something_else(count: int, words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        list(sampler().follow([[0]] * count))


def test_a_loader_with_another_sampler_is_refused() -> None:
    with pytest.raises(ConfigError, match="another batch sampler"):
        next(sampler().follow(PlainLoader(sampler())))


@pytest.mark.parametrize("done", [0, 3])
@pytest.mark.parametrize("workers", [0, 2])
def test_a_wrapped_loader_is_followed(done: int, workers: int) -> None:
    """With the same random numbers as without the wrapper, also in the middle of an epoch."""

    def followed(wrap: Callable[[Any], Iterable[Any]]) -> tuple[list[list[int]], list[float]]:
        one = sampler()
        one.load_state_dict({**one.state_dict(), "position": done})
        torch.manual_seed(5)
        loader: Any = DataLoader(range(100), batch_sampler=one, num_workers=workers)  # type: ignore[arg-type]
        batches, drawn = [], []
        for batch in one.follow(wrap(loader)):
            batches.append(batch.tolist())
            drawn.append(torch.rand(()).item())
            one.state_dict()
        return batches, drawn

    assert followed(tqdm_like) == followed(lambda loader: loader)


def tqdm_like(loader: Any) -> Iterator[Any]:
    yield from loader


# --- saved and found again ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"length": 120}, "length was 100 and is 120"),
        ({"seed": 8}, "seed was 7 and is 8"),
        ({"global_batch_size": 20}, "global_batch_size was 10 and is 20"),
        ({"shuffle": False}, "shuffle was True and is False"),
    ],
)
def test_a_position_in_other_data_is_refused_unless_accepted(
    changed: dict[str, Any], words: str
) -> None:
    one, other = sampler(), sampler(**changed)
    one.set_epoch(2)
    train([one], 3)
    with pytest.raises(ConfigError, match=rf"{words}.*data-position-lost"):
        other.load_state_dict(one.state_dict())
    assert (other.epoch, other.position) == (0, 0)
    other.load_state_dict(one.state_dict(), accept_change=True)
    assert (other.epoch, other.position) == (2, 0)


def test_follow_has_the_length_of_what_is_left() -> None:
    one = sampler()
    loop = one.follow(PlainLoader(one))
    assert len(loop) == len(one)
    next(loop)
    assert len(loop) == len(one), "the total of a progress bar does not shrink"
    later = sampler()
    later.load_state_dict({**one.state_dict(), "position": 3})
    left = later.follow(PlainLoader(later))
    assert len(left) == len(one) - 3 * len(one.shares.cut(0))
    assert len(left) == len(list(left))


def test_a_loader_that_is_not_followed_has_no_position() -> None:
    one = sampler()
    assert len(list(PlainLoader(one))) == len(one)
    with pytest.raises(ConfigError, match="data-position-lost"):
        one.state_dict()
    next(one.follow(PlainLoader(one)))
    assert one.state_dict()["position"] == 0


# --- gradients are exchanged once --------------------------------------------------------------


class Switched:
    def __init__(self) -> None:
        self.calls: list[bool] = []

    def set_requires_gradient_sync(self, on: bool) -> None:
        self.calls.append(on)


def test_fsdp2_is_switched_off_and_on_again() -> None:
    one, model = sampler(), Switched()
    for _ in zip(range(4), one.follow(PlainLoader(one)), strict=False):
        with one.sync(model):
            model.calls.append(one.is_last_micro_batch)
    assert model.calls == [False, False, True] * 3 + [True, True, True]


def test_a_bare_model_is_left_alone() -> None:
    one = sampler()
    next(one.follow(PlainLoader(one)))
    with one.sync(object()):
        assert not one.is_last_micro_batch
