"""torchdata's loader, resumed: exactly in the same world, by the sampler in another, or refused."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils.data import DataLoader, Dataset, IterableDataset, get_worker_info
from torchdata.stateful_dataloader import StatefulDataLoader  # type: ignore[import-untyped]

from holdfast.checkpoint import tree
from holdfast.checkpoint.stateful_loader import StatefulLoader
from holdfast.checkpoint.tensors import TensorEncoder
from holdfast.errors import ConfigError
from tests.checkpoint.sampler_ranks import sampler

# torchdata 0.11 calls what torch 2.13 has given up
pytestmark = pytest.mark.filterwarnings("ignore:'set_vital' is deprecated:UserWarning")

LENGTH, BATCH = 96, 12


class Numbers(Dataset[int]):
    """A dataset with state of its own in each worker: how often it was asked."""

    def __init__(self) -> None:
        self.asked = 0

    def __len__(self) -> int:
        return LENGTH

    def __getitem__(self, index: int) -> int:
        self.asked += 1
        return index * 1000 + self.asked

    def state_dict(self) -> dict[str, int]:
        return {"asked": self.asked}

    def load_state_dict(self, saved: dict[str, int]) -> None:
        self.asked = saved["asked"]


class Stream(IterableDataset[int]):
    def __iter__(self) -> Iterator[int]:
        info = get_worker_info()
        return iter(range(info.id if info else 0, LENGTH, info.num_workers if info else 1))


def mapped(rank: int = 0, world_size: int = 1, workers: int = 0) -> StatefulLoader:
    one = sampler(rank, world_size, length=LENGTH, global_batch_size=BATCH)
    return StatefulLoader(StatefulDataLoader(Numbers(), batch_sampler=one, num_workers=workers))


def streamed(rank: int = 0, world_size: int = 1, workers: int = 0) -> StatefulLoader:
    loader = StatefulDataLoader(Stream(), batch_size=4, num_workers=workers)
    return StatefulLoader(loader, rank=rank, world_size=world_size)


def taken(loader: StatefulLoader, batches: int) -> tuple[list[list[int]], dict[str, Any]]:
    """So many micro-batches, and the state as a save in the loop's body sees it."""
    given: list[list[int]] = []
    for batch in loader:
        given.append(batch.tolist())
        if len(given) == batches:
            return given, saved(loader)
    raise AssertionError("it ended too soon")


def saved(loader: StatefulLoader) -> dict[str, Any]:
    """As it comes back from a checkpoint's file."""
    text = tree.to_json(tree.encode(loader.state_dict(), TensorEncoder().encode))
    found: dict[str, Any] = tree.decode(tree.from_json(text), refuse_kind)
    return found


def refuse_kind(kind: str, _body: object) -> object:
    raise LookupError(kind)


def rest(loader: StatefulLoader) -> list[list[int]]:
    return [batch.tolist() for batch in loader]


def indices(batches: list[list[int]]) -> list[int]:
    return [number // 1000 for batch in batches for number in batch]


@pytest.mark.parametrize("workers", [0, 2])
def test_same_world_continues_exactly(workers: int) -> None:
    """Also what the dataset itself keeps, in every worker."""
    whole = rest(mapped(workers=workers))
    first, state = taken(mapped(workers=workers), 12)  # three global batches of four
    again = mapped(workers=workers)
    again.load_state_dict(state)
    assert first + rest(again) == whole
    assert again.sampler is not None
    assert (again.sampler.epoch, again.sampler.position) == (1, 0)


def test_next_epoch_after_a_resume() -> None:
    one, again = mapped(), mapped()
    rest(one)
    again.load_state_dict(taken(mapped(), 4)[1])
    rest(again)
    assert indices(rest(again)) == indices(rest(one))


def test_the_last_save_of_an_epoch() -> None:
    one = mapped()
    _, state = taken(one, 32)
    again = mapped()
    again.load_state_dict(state)
    assert rest(again) == []
    other = mapped()
    rest(other)
    assert indices(rest(again)) == indices(rest(other))


def test_saved_between_two_epochs() -> None:
    one = mapped()
    rest(one)
    again = mapped()
    again.load_state_dict(saved(one))
    assert indices(rest(again)) == indices(rest(one))


def test_within_a_global_batch_it_is_repeated_as_a_whole() -> None:
    first, state = taken(mapped(), 6)
    again = mapped()
    again.load_state_dict(state)
    assert indices(rest(again))[:6] == indices(first[4:6])


def test_another_world_continues_by_the_sampler() -> None:
    first, state = taken(mapped(), 12)
    seen = indices(first)
    for rank in range(3):
        loader = mapped(rank, 3)
        loader.load_state_dict(state)
        seen += indices(rest(loader))
    assert sorted(seen) == list(range(LENGTH))


def test_another_number_of_workers_continues_by_the_sampler() -> None:
    first, state = taken(mapped(workers=2), 12)
    again = mapped()
    again.load_state_dict(state)
    assert sorted(indices(first + rest(again))) == list(range(LENGTH))


@pytest.mark.parametrize("workers", [0, 2])
def test_a_stream_continues_in_the_same_world(workers: int) -> None:
    whole = rest(streamed(workers=workers))
    first, state = taken(streamed(workers=workers), 5)
    again = streamed(workers=workers)
    again.load_state_dict(state)
    assert first + rest(again) == whole


def test_a_stream_in_another_world_is_refused_unless_accepted() -> None:
    _, state = taken(streamed(), 5)
    other = streamed(0, 2)
    with pytest.raises(ConfigError, match=r"saved by 1 ranks, and there are 2.*data-position-lost"):
        other.load_state_dict(state)
    other.load_state_dict(state, accept_change=True)
    assert rest(other) == rest(streamed())


def test_a_stream_with_other_workers_is_refused() -> None:
    _, state = taken(streamed(), 5)
    with pytest.raises(ConfigError, match=r"another number of workers.*data-position-lost"):
        streamed(workers=2).load_state_dict(state)


def test_its_scope_and_length() -> None:
    assert mapped().data_scope == "global"
    assert streamed().data_scope == "per-rank"
    assert len(mapped()) == 32


def test_a_loader_without_a_position_is_refused() -> None:
    with pytest.raises(ConfigError, match="its data position is unknown"):
        StatefulLoader(DataLoader(torch.zeros(4)))  # type: ignore[arg-type]
