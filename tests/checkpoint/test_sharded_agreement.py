"""All ranks agree on who holds what, and little goes through the store."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import msgspec
import pytest

from holdfast.checkpoint.message_board import MemoryStore, MessageBoard
from holdfast.checkpoint.sharded_agreement import HeldDigest, ShardAgreement
from holdfast.checkpoint.sharded_plan import Grids, HeldState, Samples, pieces_to_write
from holdfast.errors import Error
from tests.checkpoint.test_sharded_plan import plain, sharded


class MeasuredStore(MemoryStore):
    """Counts the bytes that are put into it."""

    def __init__(self) -> None:
        super().__init__()
        self.bytes = 0

    def set(self, key: str, value: str, /) -> None:
        self.bytes += len(value)
        super().set(key, value)


class Job:
    """Ranks in threads, over one store."""

    def __init__(self, world_size: int, patience: float = 20) -> None:
        self.store = MeasuredStore()
        self.ranks = [
            ShardAgreement(
                MessageBoard(self.store, rank=rank, world_size=world_size), patience=patience
            )
            for rank in range(world_size)
        ]

    def agree(
        self, token: str, held: Sequence[HeldState | None], values: Sequence[Samples] = ()
    ) -> list[object]:
        """The names that each rank writes, or the sentence it gets; None: it does not come."""
        found: list[object] = [None] * len(held)

        def one(rank: int, mine: HeldState) -> None:
            try:
                given = values[rank] if values else {}
                holders = self.ranks[rank].agree(token, HeldDigest(mine), lambda: given)
                taken = pieces_to_write(rank, mine, holders, Grids())
                found[rank] = [name for name, _, _ in taken]
            except Error as problem:
                found[rank] = f"{type(problem).__name__}: {problem.sentence}"

        threads = [
            threading.Thread(target=one, args=(rank, mine))
            for rank, mine in enumerate(held)
            if mine is not None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


HELD = [sharded("a", 0, 1)] * 2


def test_nothing_stays_in_the_store_and_the_index_is_of_the_latest_plan() -> None:
    job = Job(2)
    assert job.agree("one", HELD) == [["a"], ["a"]]
    first = job.store.bytes
    assert job.agree("two", HELD) == [["a"], ["a"]]
    assert job.store.bytes - first < 500, "nothing is described again"
    assert len(job.store) == 0
    assert job.ranks[0].number == 1
    both = msgspec.structs.replace(HELD[1], tensors=(*HELD[1].tensors, *plain("b").tensors))
    assert job.agree("three", [HELD[0], both]) == [["a"], ["a", "b"]]
    assert len(job.store) == 0
    assert b'"b"' in job.ranks[0].index_text
    assert [rank.number for rank in job.ranks] == [2, 2]


def test_of_ranks_that_hold_the_same_one_describes_it() -> None:
    """Ten times the ranks are not ten times the bytes."""

    def sent(ranks: int) -> int:
        job = Job(ranks)
        many = plain(*(f"layers.{i}.attention.weight" for i in range(500)))
        other = plain("another")  # on rank 0, so that the others are asked
        written = job.agree("one", [other] + [many] * (ranks - 1))
        assert all(isinstance(names, list) for names in written)
        return job.store.bytes

    assert sent(20) < 2 * sent(2)


def test_a_rank_that_does_not_come_ends_this_save_and_not_the_next() -> None:
    job = Job(3, patience=0.3)
    held = [sharded("a", 0, 1, 2, size=(6, 3))] * 3
    said = job.agree("one", [*held[:2], None])
    assert said[0] == said[1]
    assert "rank 0 timed out after 0.3 s waiting for rank 2 (save)" in str(said[0])
    assert job.agree("two", held) == [["a"]] * 3


@pytest.mark.parametrize("known", [False, True])
def test_plain_tensors_with_other_values_are_refused_on_all(known: bool) -> None:
    """Of ranks that seem to hold the same, and of ranks that have more besides."""
    job = Job(3)
    third = plain("expert", "more") if known else plain("expert")
    held = [plain("expert"), plain("expert"), third]
    said = job.agree(
        "one", held, [{"expert": (1.0, 2.0)}, {"expert": (1.0, 2.0)}, {"expert": (2.0, 1.0)}]
    )
    assert len(set(map(str, said))) == 1
    assert "ConfigError: expert is a plain tensor with other values on" in str(said[0])
    assert len(job.store) == 0
    same = [{"expert": (1.0, 2.0)}] * 3
    assert not any(isinstance(each, str) for each in job.agree("two", held, same))
    # Values are compared once: they change with every step.
    assert not any(isinstance(each, str) for each in job.agree("three", held, [{}] * 3))


def test_stages_that_use_one_name_for_other_tensors_are_refused_on_all() -> None:
    job = Job(4)
    said = job.agree("one", [sharded("0.weight", 0, 1)] * 2 + [sharded("0.weight", 2, 3)] * 2)
    assert len(set(map(str, said))) == 1
    assert "ConfigError: 0.weight is on ranks 0-1, and on ranks 2-3" in str(said[0])
