"""The same samples in the same order through 4, 2, 3 and 4 ranks, by real saves and resumes."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.checkpoint.checkpoint import Checkpoint
from holdfast.checkpoint.sampler import Sampler
from holdfast.checkpoint.state import State
from tests.checkpoint.thread_ranks import ThreadRanks

LENGTH, GLOBAL_BATCH = 100, 12


def train(ranks: ThreadRanks, folder: Path, steps: int) -> list[list[int]]:
    """What all ranks saw in each of so many global batches, in the order of the data."""

    def rank(number: int) -> list[list[int]]:
        sampler = Sampler(
            LENGTH, global_batch_size=GLOBAL_BATCH, micro_batch_size=4, seed=3, rank=number,
            world_size=ranks.size,
        )  # fmt: skip
        seen: list[list[int]] = []
        state = State(data=sampler)
        with Checkpoint(folder, state, every="2h") as ckpt:
            first = ckpt.resume()
            batch: list[int] = []
            for micro in sampler.follow(sampler):
                batch += micro
                if sampler.is_last_micro_batch:
                    seen.append(batch)
                    batch = []
                    ckpt.step()
                    if state.step == first + steps:
                        break
            ckpt.save()
        return seen

    by_rank = ranks.run(rank)
    return [
        sorted(sample for share in batch for sample in share)
        for batch in zip(*by_rank, strict=True)
    ]


def test_every_sample_once_whatever_the_number_of_ranks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    undisturbed = train(ThreadRanks(1, monkeypatch), tmp_path / "alone", 100)
    moved = [
        batch
        for size, steps in ((4, 3), (2, 2), (3, 2), (4, 100))
        for batch in train(ThreadRanks(size, monkeypatch), tmp_path / "moved", steps)
    ]
    assert moved == undisturbed
    assert sorted(sample for batch in moved for sample in batch) == list(range(LENGTH))
