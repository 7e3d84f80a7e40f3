"""The board: words, calls, and how little of them stays."""

from __future__ import annotations

import mmap

import pytest

from holdfast.checkpoint.message_board import BLOCK, Board, Call, Memory
from holdfast.checkpoint.save_schedule import Word, first_word
from holdfast.errors import EnvironmentFailure
from holdfast.rank import heartbeat_page, own_page


def word(number: int) -> Word:
    return Word(number=number, step=number * 10, save=number % 2 == 0, following=number * 10 + 10)


def test_what_rank_0_publishes_is_what_the_others_read() -> None:
    store = Memory()
    first, second = (Board(store, rank=rank, world_size=2) for rank in (0, 1))
    first.publish(word(2))
    assert second.read(2) == word(2)


def test_words_that_all_have_read_are_cleared_away() -> None:
    store = Memory()
    boards = [Board(store, rank=rank, world_size=3) for rank in range(3)]
    for number in range(1, 10 * BLOCK):
        boards[0].publish(word(number))
        for board in boards[1:]:
            board.read(number)
    assert len(store) < 3 * BLOCK


def test_a_rank_that_is_far_behind_finds_every_word() -> None:
    store = Memory()
    boards = [Board(store, rank=rank, world_size=3) for rank in range(3)]
    for number in range(1, 5 * BLOCK):
        boards[0].publish(word(number))
        boards[1].read(number)
    assert [boards[2].read(number).step for number in (1, BLOCK, 4 * BLOCK)] == [
        10, 10 * BLOCK, 40 * BLOCK,
    ]  # fmt: skip


def test_a_job_of_one_keeps_nothing() -> None:
    store = Memory()
    board = Board(store, rank=0, world_size=1)
    for number in range(1, 10 * BLOCK):
        board.publish(word(number))
    assert len(store) <= BLOCK + 2


def test_calls_are_heard_once_and_in_order() -> None:
    store = Memory()
    boards = [Board(store, rank=rank, world_size=3) for rank in range(3)]
    boards[2].call(Call(rank=2, kind="stop"))
    boards[1].call(Call(rank=1, kind="save"))
    assert [(c.rank, c.kind) for c in boards[0].calls()] == [(2, "stop"), (1, "save")]
    assert boards[0].calls() == []


def test_a_word_that_never_comes_names_who_was_to_say_it() -> None:
    board = Board(Memory(), rank=3, world_size=4)
    with pytest.raises(EnvironmentFailure, match="rank 3 waited in vain for what rank 0"):
        board.hear("word/2", Word, patience=0.0)


def test_a_rank_that_waits_says_for_whom_on_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = mmap.mmap(-1, heartbeat_page.SIZE)
    monkeypatch.setattr(own_page, "page", heartbeat_page.Page(page))
    own_page.page.announce(1)  # type: ignore[union-attr]
    seen = []

    class Slow(Memory):
        def check(self, keys: list[str], /) -> bool:
            beat = heartbeat_page.read(page)
            seen.append(beat.waits_for if beat else -1)
            if len(seen) == 3:
                self.set(keys[0], '{"number":2,"step":2,"following":3}')
            return super().check(keys)

    assert Board(Slow(), rank=1, world_size=2).read(2).following == 3
    beat = heartbeat_page.read(page)
    assert seen == [None, 0, 0]
    assert beat is not None
    assert beat.waits_for is None


def test_the_first_word_needs_no_store() -> None:
    assert first_word(41) == Word(number=1, step=42, following=43)
