"""What a member does when its coordinator is lost: its ranks end before anything else."""

from __future__ import annotations

import errno
import io
import math
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.analysis.job.run_paths import RunPaths
from holdfast.run.launch.places import RunPlaces
from holdfast.run.nodes.link.interface import CoordinatorLost
from holdfast.run.nodes.member_watch import MemberWatch
from holdfast.run.nodes.membership import Membership
from holdfast.run.nodes.messages import (
    Admitted,
    EndRound,
    Leaving,
    RanksGone,
    ToCoordinator,
    ToLauncher,
)
from holdfast.run.runs.journal import Journal
from holdfast.run.watch.interface import JobAction
from holdfast.view.run_screen import Screen
from tests.run.peers_in_memory import a_round
from tests.run.watched import SLEEP, process

SILENT = CoordinatorLost("silent", "nothing from the coordinator for 7.0 s", 7.0)


class Link:
    """What a coordinator said and how it was lost is set by the test."""

    admitted = Admitted(name="b", run="run")
    coordinator, coordinator_address, own_address = "a", "10.0.0.1", "10.0.0.2"

    def __init__(self) -> None:
        self.batches: list[list[ToLauncher]] = []
        self.failure: Exception | None = None
        self.is_lost: CoordinatorLost | None = None
        self.sent: list[ToCoordinator] = []
        self.extend: Callable[[float], None] = lambda _: None

    def keep_fenced(self, extend: Callable[[float], None]) -> None:
        self.extend = extend

    def news(self) -> list[ToLauncher]:
        if self.failure:
            raise self.failure
        return self.batches.pop(0) if self.batches else []

    def wait(self, seconds: float) -> None: ...

    def send(self, message: ToCoordinator) -> None:
        self.sent.append(message)

    def silent(self) -> float:
        return 0.0

    def lost(self) -> CoordinatorLost | None:
        return self.is_lost

    def close(self, why: str = "") -> None: ...


class Fence:
    lifted = False

    def extend(self, until: float) -> None:
        assert until <= math.inf

    def lift(self) -> None:
        self.lifted = True


class Member:
    def __init__(self, folder: Path) -> None:
        paths = RunPaths(str(folder), "run")
        os.makedirs(paths.folder)
        self.places = RunPlaces(paths, lambda news: None)
        self.journal = Journal(paths.journal, writer=self.places.writer)
        self.screen, self.link, self.fence = io.StringIO(), Link(), Fence()
        screen = Screen(self.screen)
        self.membership = Membership(
            self.link, screen=screen, journal=self.journal, fence=self.fence
        )
        self.watch = MemberWatch(
            self.membership,
            journal=self.journal,
            screen=screen,
            places=self.places,
            memory_kills=lambda: 0,
        )

    def start(self, pid: int) -> None:
        self.link.batches = [[a_round(a=1, b=1)]]
        self.next_round()
        self.watch.rank_environment(0, {"RANK": "1", "TORCHELASTIC_RESTART_COUNT": "0"})
        self.watch.ranks_started(0, {0: pid})
        assert self.watch.look() is JobAction.HOLD

    def next_round(self) -> None:
        self.membership.next_round(lambda *_: 0, lambda: None)

    def sent(self, kind: type[Any]) -> list[Any]:
        return [message for message in self.link.sent if isinstance(message, kind)]


@pytest.fixture
def member(tmp_path: Path) -> Iterator[Member]:
    made = Member(tmp_path)
    yield made
    made.watch.close()
    made.places.close()
    made.journal.close()


def test_nothing_is_said_before_the_ranks_are_gone(member: Member) -> None:
    """A terminal that takes nothing cost a second a line, in which the others started again."""
    with process(SLEEP) as rank:
        member.start(rank.pid)
        before = member.screen.getvalue()
        member.link.is_lost = SILENT
        assert member.watch.look() in (JobAction.STOP, JobAction.RESTART)
        assert member.watch.culprits() == {0}
        assert member.watch.fenced()
        assert member.screen.getvalue() == before
        member.watch.ranks_stopped([])
        assert "store-host-lost" in member.screen.getvalue()
        assert member.sent(RanksGone) == [RanksGone(round=1)]


@pytest.mark.parametrize("fails", ["looking", "the link's thread", "both"])
def test_the_lease_is_looked_at_before_anything_that_can_fail(member: Member, fails: str) -> None:
    """With no file descriptor left every look failed, and none came to the lease."""
    problem = OSError(errno.EMFILE, os.strerror(errno.EMFILE))

    def look(now: float) -> Any:
        raise problem

    with process(SLEEP) as rank:
        member.start(rank.pid)
        kept = member.watch.observer.look
        if fails in ("looking", "both"):
            member.watch.observer.look = look  # type: ignore[method-assign]
        if fails in ("the link's thread", "both"):
            member.link.failure = problem
        member.link.is_lost = SILENT
        assert member.watch.look() in (JobAction.STOP, JobAction.RESTART)
        assert member.watch.culprits() == {0}
        member.watch.observer.look = kept  # type: ignore[method-assign]
        member.link.failure = None
        member.watch.ranks_stopped([])


def test_orders_in_one_batch_with_the_start_of_a_round_are_kept(member: Member) -> None:
    """After an outage, or where the agent was busy, they come together."""
    restart = EndRound(round=1, action="restart")
    member.link.batches = [[a_round(a=1, b=1), restart]]
    member.next_round()
    assert member.membership.news() == [restart]
    assert member.membership.news() == []


def test_what_the_coordinator_said_before_it_was_lost_counts(member: Member) -> None:
    with process(SLEEP) as rank:
        member.start(rank.pid)
        member.link.batches = [[EndRound(round=1, action="done")]]
        member.link.is_lost = SILENT
        assert member.watch.look() is JobAction.KEEP_RUNNING
        assert not member.watch.fenced()
        member.watch.ranks_stopped([])


@pytest.mark.parametrize(("others_go_on", "lifted"), [(False, True), (True, False)])
def test_ranks_have_their_grace_where_no_others_start(
    member: Member, others_go_on: bool, lifted: bool
) -> None:
    """A node that is left out ends its ranks under its lease: the others start without it."""
    with process(SLEEP) as rank:
        member.start(rank.pid)
        order = EndRound(round=1, action="stop", exit_code=124, others_go_on=others_go_on)
        member.link.batches = [[order]]
        assert member.watch.look() is JobAction.STOP
        assert member.fence.lifted is lifted
        member.link.is_lost = SILENT
        assert member.watch.fenced() is not lifted
        member.watch.ranks_stopped([])


def test_ranks_that_sigkill_did_not_end_are_not_said_to_be_gone(member: Member) -> None:
    with process(SLEEP) as rank:
        member.start(rank.pid)
        member.watch.ranks_stopped([rank.pid])
        assert member.sent(RanksGone) == []
        member.watch.told_to_stop(signal.SIGTERM)
        member.watch.close()
        (last,) = member.sent(Leaving)
        assert last == Leaving(
            why=f"process {rank.pid} did not exit after SIGKILL", ranks_gone=False
        )
