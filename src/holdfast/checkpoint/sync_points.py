"""The sync points of one rank: what rank 0 announced for this step, and what it announces next.

A store in trouble stops saves, never the training. A rank that could not read an announcement in
time has missed it; it reads on, without waiting, until it knows of a sync point that is still ahead
of it. Rank 0 announces on, and nothing but sync points: its words get through in their order once
the store answers, because ranks that see a healthy store wait for them.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable

import msgspec

from holdfast.checkpoint.answering_store import StoreTroubleError
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.save_schedule import (
    SYNC_SECONDS,
    Announcement,
    RequestKind,
    SaveInterval,
    SaveSchedule,
    first_announcement,
)
from holdfast.errors import EnvironmentFailure

FIRST_SECONDS = 10.0
"""that a rank waits in its second step for a rank 0 that has not called ckpt.step() at all"""
PATIENCE = 300.0
"""seconds for any later announcement: rank 0 is far behind, or cut off from the store. Less than
the 10 minutes after which NCCL would end the job that waits for this rank"""


class SyncPoints:
    """One per Checkpoint and rank."""

    def __init__(self, board: MessageBoard, interval: SaveInterval) -> None:
        self._board, self._interval = board, interval
        self.next = -1
        """the step of the next one; in trouble, the next step"""
        self.trouble = ""
        """why announcements cannot be exchanged at the moment"""
        self._retry_at = 0.0
        self._last = self._ahead = first_announcement(0)
        self._schedule: SaveSchedule | None = None
        self._requested: RequestKind = ""

    @property
    def started(self) -> bool:
        return self.next >= 0

    def start(self, step: int) -> None:
        """After that step, on all ranks the same, sync points begin."""
        self._ahead = first_announcement(step)
        self._last = Announcement(number=0, step=step, following=step + 1)
        self.next = step + 1
        self._board.mark_later(f"started/{self._board.rank}")
        if self._board.rank == 0:
            self._schedule = SaveSchedule(self._interval, start=step, now=time.monotonic())

    def at(self, step: int) -> Announcement | None:
        """What all ranks do at this step; None: nothing, or this rank cannot know or came late."""
        if self._board.rank == 0:
            self._last = self._ahead
            return self._last if self._last.step == step else None
        if self.trouble and time.monotonic() < self._retry_at:
            return None
        try:
            return self._read(step)
        except EnvironmentFailure as problem:
            self._note_trouble(problem)
            self.next = step + 1
            return None

    def _read(self, step: int) -> Announcement | None:
        while self._last.following <= step or self._ahead is not self._last:
            if self._ahead is self._last and not self._read_next():
                return None
            if self._ahead.step > step:
                break
            self._last = self._ahead
            if self._last.step == step:
                break
        self.next = self._last.following if self._ahead is self._last else self._ahead.step
        self.trouble = ""
        return self._last if self._last.step == step else None

    def _read_next(self) -> bool:
        """False: not there yet. Only a rank in trouble does not wait for it."""
        number = self._last.number + 1
        if self.trouble and not self._board.is_posted(f"announcement/{number}"):
            self._retry_at = time.monotonic() + SYNC_SECONDS
            return False
        not_begun = number == 2 and not self._board.is_posted("started/0")
        try:
            self._ahead = self._board.announcement(
                number, patience=FIRST_SECONDS if not_begun else PATIENCE
            )
        except StoreTroubleError:
            raise
        except EnvironmentFailure:
            if not_begun and not self._board.is_posted("started/0"):
                raise EnvironmentFailure("rank 0 has not called ckpt.step()") from None
            raise
        return True

    def _note_trouble(self, problem: EnvironmentFailure) -> None:
        self.trouble = problem.sentence
        self._retry_at = time.monotonic() + SYNC_SECONDS

    def announce_next(
        self,
        step: int,
        *,
        busy: Callable[[int], bool],
        interval: float,
        committed: int,
        compare: bool = False,
    ) -> None:
        """Rank 0, at this step: what happens at the next sync point.

        `busy`: at the sync point of that number no save can begin. `interval`: as measured.
        `compare`: the ranks compare what they hold.
        """
        schedule = self._schedule
        assert schedule is not None, "only rank 0 announces"
        try:
            for kind in self._board.requests():
                self._note_request(kind)
            no_save, self.trouble = busy(self._last.number), ""
        except EnvironmentFailure as problem:
            no_save = True
            self._note_trouble(problem)
        schedule.interval = interval or schedule.interval
        last = msgspec.structs.replace(
            self._last, step=step, following=max(self._last.following, step + 1)
        )
        following = schedule.announce_next(
            last,
            now=time.monotonic(),
            busy=no_save,
            requested="" if self.trouble else self._requested,
        )
        if following.save:
            self._requested = ""
        self._ahead = msgspec.structs.replace(
            following,
            token=secrets.token_hex(4) if following.save else "",
            committed=committed,
            compare=compare,
        )
        self.next = self._ahead.step
        try:
            self._board.announce(self._ahead)
        except EnvironmentFailure as problem:
            self._note_trouble(problem)

    def request(self, kind: RequestKind) -> bool:
        """From any rank; False where it could not be passed on."""
        if self._board.rank == 0:
            self._note_request(kind)
            return True
        try:
            self._board.request(kind)
        except EnvironmentFailure as problem:
            self._note_trouble(problem)
            return False
        return True

    def _note_request(self, kind: RequestKind) -> None:
        self._requested = "stop" if "stop" in (kind, self._requested) else kind
