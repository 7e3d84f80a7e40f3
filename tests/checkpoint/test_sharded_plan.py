"""Who writes which piece: every piece once, whatever ranks hold; and all ranks agree on it."""

from __future__ import annotations

import threading
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint.message_board import MemoryStore, MessageBoard
from holdfast.checkpoint.sharded_plan import ShardAgreement, ShardPiece, divide, piece_name
from holdfast.errors import EnvironmentFailure


def rows(name: str, first: int, last: int, of: int) -> ShardPiece:
    return ShardPiece(name, "float32", (of, 3), (first, 0), (last - first, 3))


def test_what_all_hold_is_spread_over_them() -> None:
    held = [tuple(ShardPiece(name, "float32", (8,), (0,), (8,)) for name in "abcd")] * 4
    divided = divide(held)
    assert sorted(taken for (taken,) in divided.taken) == [0, 1, 2, 3]
    assert {name: saved.parts[0].rank for name, saved in divided.index.items()} == dict(
        zip("abcd", range(4), strict=True)
    )


@pytest.mark.parametrize(
    ("held", "words"),
    [
        ([[rows("a", 0, 2, 5)], [rows("a", 3, 5, 5)]], "do not make whole tensors"),
        ([[rows("a", 0, 3, 5)], [rows("a", 2, 5, 5)]], "do not make whole tensors"),
        ([[rows("a", 0, 2, 4)], [rows("a", 2, 5, 5)]], "differs between ranks: float32 [4, 3] and"),
    ],
)
def test_shards_that_do_not_fit_together_are_refused(
    held: list[list[ShardPiece]], words: str
) -> None:
    with pytest.raises(EnvironmentFailure, match="a") as raised:
        divide(held)
    assert words in str(raised.value)


@given(st.lists(st.integers(1, 5), min_size=1, max_size=4), st.integers(1, 3), st.integers(0, 4))
def test_every_piece_is_written_exactly_once(heights: list[int], replicas: int, empty: int) -> None:
    """Rows cut at will, each shard on so many ranks, some ranks with nothing."""
    edges = [sum(heights[:i]) for i in range(len(heights) + 1)]
    shards = [
        (rows("w", edges[i], edges[i + 1], edges[-1]), ShardPiece("step", "float32", (), (), ()))
        for i in range(len(heights))
    ]
    held: list[tuple[ShardPiece, ...]] = [*shards * replicas, *[()] * empty]
    divided = divide(held)
    written = [
        (item.name, item.offsets)
        for items, taken in zip(held, divided.taken, strict=True)
        for item in (items[i] for i in taken)
    ]
    expected = [("w", (edge, 0)) for edge in edges[:-1]] + [("step", ())]
    assert sorted(written) == sorted(expected)
    for name, saved in divided.index.items():
        for part in saved.parts:
            assert (name, part.offsets) in [(i.name, i.offsets) for i in held[part.rank]]


def test_a_piece_has_its_offset_in_its_name_unless_it_is_whole() -> None:
    assert piece_name("model.fc.weight", (4, 3), (2, 0), (2, 3)) == "model.fc.weight[2,0]"
    assert piece_name("model.fc.weight", (4, 3), (0, 0), (4, 3)) == "model.fc.weight"
    assert piece_name("step", (), (), ()) == "step"


# --- agreement ---------------------------------------------------------------------------------


class Job:
    """Ranks in threads, over one store."""

    def __init__(self, world_size: int, patience: float) -> None:
        self.store = MemoryStore()
        self.ranks = [
            ShardAgreement(
                MessageBoard(self.store, rank=rank, world_size=world_size), patience=patience
            )
            for rank in range(world_size)
        ]

    def agree(self, token: str, held: Sequence[Sequence[ShardPiece] | None]) -> list[object]:
        """What each rank is told to take, or the sentence it gets; None: it does not come."""
        found: list[object] = [None] * len(held)

        def one(rank: int, items: Sequence[ShardPiece]) -> None:
            try:
                found[rank] = self.ranks[rank].taken(token, tuple(items))
            except EnvironmentFailure as problem:
                found[rank] = problem.sentence

        threads = [
            threading.Thread(target=one, args=(rank, items))
            for rank, items in enumerate(held)
            if items is not None
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        return found


HELD = [[rows("a", 0, 2, 4)], [rows("a", 2, 4, 4)], [rows("a", 2, 4, 4)]]


def test_nothing_stays_in_the_store_and_the_index_is_of_the_latest_plan() -> None:
    job = Job(3, patience=20)
    assert job.agree("one", HELD) == [(0,), (0,), ()]
    assert job.agree("two", HELD) == [(0,), (0,), ()]
    assert len(job.store) == 0
    before = job.ranks[0].index_text
    assert job.agree("three", [*HELD[:2], [*HELD[2], rows("b", 0, 1, 1)]])[2] == (1,)
    assert len(job.store) == 0
    assert before != job.ranks[0].index_text
    assert b'"b"' in job.ranks[0].index_text


def test_a_rank_that_does_not_come_ends_this_save_and_not_the_next() -> None:
    job = Job(3, patience=0.3)
    said = job.agree("one", [HELD[0], HELD[1], None])
    assert said[0] == said[1]
    assert "rank 0 timed out after 0.3 s waiting for rank 2 (save)" in str(said[0])
    assert job.agree("two", HELD) == [(0,), (0,), ()]


def test_shards_that_do_not_fit_are_an_error_on_every_rank() -> None:
    job = Job(2, patience=20)
    said = job.agree("one", [HELD[0], [rows("a", 3, 4, 4)]])
    assert said[0] == said[1]
    assert "do not make whole tensors" in str(said[0])
    assert job.agree("two", HELD[:2]) == [(0,), (0,)]
