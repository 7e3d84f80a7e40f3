"""A member's side of the coordinator: waits for rounds, and takes its orders."""

from __future__ import annotations

import os
import signal
import time
from collections import deque
from collections.abc import Callable
from typing import NoReturn, Protocol

import msgspec

from holdfast.analysis.job import journal_records
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.probing.messages import ProbeRequest
from holdfast.nodes.probing.station import ProbeStation
from holdfast.run.launch import exit_codes, scheduler
from holdfast.run.nodes import lost_coordinator
from holdfast.run.nodes.link.interface import CoordinatorLost, LauncherLink
from holdfast.run.nodes.messages import (
    EndRound,
    JournalEntry,
    Leaving,
    Ready,
    RoundStart,
    Say,
    ToCoordinator,
    ToLauncher,
    ToldToStop,
)
from holdfast.run.nodes.round_source import (
    JobIsOver,
    OpenStore,
    RoundPlace,
    ToldToEnd,
    WaitInterrupted,
)
from holdfast.run.watch.broadcast import JournalLike
from holdfast.view.run_screen import Screen

LOOK_AGAIN = 0.2
"""seconds between two looks while a round is awaited"""
JoinAgain = Callable[[ToldToEnd], LauncherLink]
"""raises ChannelError at the join timeout, WaitInterrupted for a signal"""


class Fence(Protocol):
    """What ends this node's ranks with the lease, whatever becomes of this launcher."""

    def extend(self, until: float) -> None:
        """Seconds of CLOCK_BOOTTIME, or inf. Called by the link's thread."""

    def lift(self) -> None:
        """No other node starts again while they end."""


class Membership:
    """Is the agent's `RoundSource` on every node but the coordinator's."""

    def __init__(
        self,
        link: LauncherLink,
        *,
        screen: Screen,
        journal: JournalLike,
        fence: Fence,
        join_again: JoinAgain | None = None,
    ) -> None:
        """`join_again`: after the coordinator was lost; None where that is the end."""
        self._link, self._screen, self._journal, self._fence = link, screen, journal, fence
        self._join_again = join_again
        link.keep_fenced(fence.extend)
        self._unread: deque[ToLauncher] = deque()
        self._station = ProbeStation()
        self.place: RoundPlace | None = None
        self._over = False

    @property
    def node(self) -> str:
        """What the others call this one."""
        return self._link.admitted.name

    @property
    def coordinator(self) -> str:
        return self._link.coordinator

    @property
    def own_address(self) -> str:
        """By which the coordinator is reached."""
        return self._link.own_address

    @property
    def round(self) -> int:
        return self.place.start.round if self.place else 0

    def send(self, message: ToCoordinator) -> None:
        self._link.send(message)

    def lost(self) -> CoordinatorLost | None:
        return self._link.lost()

    def silent(self) -> float:
        """Seconds since the coordinator was last heard."""
        return self._link.silent()

    def news(self) -> list[ToLauncher]:
        """What is more than to be shown, or to be tried beside the ranks."""
        for reply in self._station.replies():
            self.send(reply)
        self._unread += [message for message in self._link.news() if not self._is_done(message)]
        unread = list(self._unread)
        self._unread.clear()
        return unread

    def _is_done(self, message: ToLauncher) -> bool:
        if isinstance(message, Say):
            if message.status:
                self._screen.status(message.lines[0] if message.lines else "")
            else:
                self._screen.say(message.lines)
        elif isinstance(message, JournalEntry):
            record = journal_records.decode(msgspec.json.encode(message.document))
            if record is not None:
                self._journal.write(record)
        elif isinstance(message, ProbeRequest):
            self._station.ask(message)
        else:
            return False
        return True

    def next_round(self, open_store: OpenStore, told: ToldToEnd) -> RoundPlace:
        del open_store  # the coordinator does that
        lost_before = self.lost() is not None  # with ranks: then the watch has said it
        self.send(Ready(after=self.round))
        while True:
            lost = self.lost()  # first: what it said before that counts
            self._unread += self.news()
            while self._unread:  # what comes after the start of a round belongs to that
                message = self._unread.popleft()
                if isinstance(message, RoundStart) and message.round > self.round:
                    self.place = RoundPlace(message, self.node, self._link.coordinator_address)
                    return self.place
                if isinstance(message, EndRound) and message.action != "restart":
                    self._end(message.reason, message.exit_code)
            if lost:
                self._come_back(lost, told, said=lost_before)
                lost_before = False
            if sign := told():
                self.send(told_to_stop(sign))
                raise WaitInterrupted
            self._link.wait(LOOK_AGAIN)

    def may_join_again(self, lost: CoordinatorLost) -> bool:
        """Not when it has ended: the next one would be another run."""
        return self._join_again is not None and lost.others_may_start

    def _come_back(self, lost: CoordinatorLost, told: ToldToEnd, *, said: bool) -> None:
        """No rank is left here. The coordinator takes this launcher back as one without ranks."""
        judge = lost_coordinator.judge
        found = judge(lost, own=self.node, coordinator=self.coordinator, answers={})
        if self._join_again is None or not self.may_join_again(lost):
            self._end(found.reason, exit_codes.STOPPED_BY_VERDICT)
        if not said:
            self._screen.say(found.reason)
        self._link.close()
        try:
            link = self._join_again(told)
        except ChannelError as problem:
            self._end(problem.sentence, exit_codes.STOPPED_BY_VERDICT)
        before, self._link = self._link.admitted.run, link
        if link.admitted.run != before:
            self._end(
                f"{link.coordinator} coordinates another run now, {link.admitted.run}: start this "
                "node again to take part in it",
                exit_codes.STOPPED_BY_VERDICT,
            )
        link.keep_fenced(self._fence.extend)
        self._screen.say(f"joined {link.coordinator} again")
        self.send(Ready(after=0))

    def _end(self, sentence: str, exit_code: int) -> NoReturn:
        self._over = True
        if sentence:
            self._screen.say(sentence)
        raise JobIsOver(sentence, exit_code)

    def job_is_over(self, *, for_all: bool = True) -> None:
        """By the coordinator's word: it need not be told that this launcher ends."""
        self._over = True
        if for_all:
            self.lift_fence()

    def lift_fence(self) -> None:
        """No other node starts again while the ranks here end."""
        self._fence.lift()

    def close(self, why: str = "", *, ranks_gone: bool = True) -> None:
        """When no rank is left. `why` this launcher ends before the job does."""
        if not (self._over and ranks_gone):
            self.send(Leaving(why=why or "its launcher ended", ranks_gone=ranks_gone))
        self._station.close()
        self._link.close(why if ranks_gone else "")


def told_to_stop(sign: signal.Signals) -> ToldToStop:
    return ToldToStop(signal=sign.name, scheduler=scheduler.read(os.environ, wall=time.time()))
