"""Samplers, a loader, and ranks that train, for the tests of the data's place."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from holdfast.checkpoint.sampler import Sampler


def sampler(rank: int = 0, world_size: int = 1, **given: Any) -> Sampler:
    sizes: dict[str, Any] = {"global_batch_size": 10, "micro_batch_size": 3, "seed": 7} | given
    return Sampler(sizes.pop("length", 100), rank=rank, world_size=world_size, **sizes)


class PlainLoader:
    """Asks for everything at once, as a loader with many workers does."""

    def __init__(self, batch_sampler: Sampler) -> None:
        self.batch_sampler = batch_sampler

    def __iter__(self) -> Iterator[list[int]]:
        return iter(list(self.batch_sampler))


def train(ranks: list[Sampler], batches: int) -> list[list[int]]:
    """So many global batches, the samples that count, as all ranks together have seen them."""
    seen: list[list[int]] = [[] for _ in range(batches)]
    for one in ranks if batches else ():
        start = one.position
        for micro in one.follow(PlainLoader(one)):
            if one.loss_weight:
                seen[one.position - start - (1 if one.is_last_micro_batch else 0)] += micro
            if one.is_last_micro_batch and one.position - start == batches:
                break
    return seen
