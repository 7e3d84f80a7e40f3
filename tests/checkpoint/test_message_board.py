"""The board: words, calls, and how little of them stays."""

from __future__ import annotations

import mmap

import pytest

from holdfast.checkpoint.message_board import BLOCK, MemoryStore, MessageBoard
from holdfast.checkpoint.save_schedule import Announcement, first_announcement
from holdfast.errors import EnvironmentFailure
from holdfast.rank import heartbeat_page, own_page


def announcement(number: int) -> Announcement:
    return Announcement(
        number=number, step=number * 10, save=number % 2 == 0, following=number * 10 + 10
    )


def test_what_rank_0_publishes_is_what_the_others_read() -> None:
    store = MemoryStore()
    first, second = (MessageBoard(store, rank=rank, world_size=2) for rank in (0, 1))
    first.announce(announcement(2))
    assert second.announcement(2) == announcement(2)


def test_announcements_that_all_have_read_are_removed() -> None:
    store = MemoryStore()
    boards = [MessageBoard(store, rank=rank, world_size=3) for rank in range(3)]
    for number in range(1, 10 * BLOCK):
        boards[0].announce(announcement(number))
        for board in boards[1:]:
            board.announcement(number)
    assert len(store) < 3 * BLOCK


def test_a_rank_that_is_far_behind_finds_every_announcement() -> None:
    store = MemoryStore()
    boards = [MessageBoard(store, rank=rank, world_size=3) for rank in range(3)]
    for number in range(1, 5 * BLOCK):
        boards[0].announce(announcement(number))
        boards[1].announcement(number)
    assert [boards[2].announcement(number).step for number in (1, BLOCK, 4 * BLOCK)] == [
        10, 10 * BLOCK, 40 * BLOCK,
    ]  # fmt: skip


def test_a_job_of_one_keeps_nothing() -> None:
    store = MemoryStore()
    board = MessageBoard(store, rank=0, world_size=1)
    for number in range(1, 10 * BLOCK):
        board.announce(announcement(number))
    assert len(store) <= BLOCK + 2


def test_requests_are_received_once() -> None:
    store = MemoryStore()
    boards = [MessageBoard(store, rank=rank, world_size=3) for rank in range(3)]
    boards[2].request("stop")
    boards[1].request("save")
    boards[2].request("save")
    assert boards[0].requests() == {"stop", "save"}
    assert boards[0].requests() == set()
    boards[1].request("save")
    assert boards[0].requests() == {"save"}


def test_an_announcement_that_never_comes_names_its_sender() -> None:
    board = MessageBoard(MemoryStore(), rank=3, world_size=4)
    with pytest.raises(
        EnvironmentFailure, match=r"^rank 3 timed out after 0 s waiting for rank 0 \(resume\)\n"
    ):
        board.receive("announcement/2", Announcement, patience=0.0, purpose="resume")


def test_a_rank_that_waits_says_for_which_one_on_its_page(monkeypatch: pytest.MonkeyPatch) -> None:
    page = mmap.mmap(-1, heartbeat_page.SIZE)
    monkeypatch.setattr(own_page, "page", heartbeat_page.HeartbeatPage(page))
    own_page.page.announce(1)  # type: ignore[union-attr]
    seen = []

    class Slow(MemoryStore):
        def check(self, keys: list[str], /) -> bool:
            beat = heartbeat_page.read(page)
            seen.append(beat.waits_for if beat else -1)
            if len(seen) == 3:
                self.set(keys[0], '{"number":2,"step":2,"following":3}')
            return super().check(keys)

    assert MessageBoard(Slow(), rank=1, world_size=2).announcement(2).following == 3
    beat = heartbeat_page.read(page)
    assert seen == [None, 0, 0]
    assert beat is not None
    assert beat.waits_for is None


def test_the_first_announcement_needs_no_store() -> None:
    assert first_announcement(41) == Announcement(number=1, step=42, following=43)
