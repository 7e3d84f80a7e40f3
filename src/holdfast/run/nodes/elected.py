"""A launcher whose coordinator is elected in etcd: it coordinates, or is a member, by turns.

torch's agent has one watcher and one source of rounds for its whole life. Behind both stands what
this launcher is at present. When that is over (the coordinator is lost, or this node is not it any
more) its ranks are killed at once, and the agent asks for the next round: then there is an
election, and what this launcher is from there on takes the place of what it was.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence
from typing import Protocol

import msgspec

from holdfast.analysis.job.journal_records import EndRecord
from holdfast.analysis.scene.scene import Scene, SurvivingProcess
from holdfast.findings import Verdict
from holdfast.nodes.channel_errors import ChannelError, WrongVersion
from holdfast.nodes.etcd.election import Await, Follow, JobEnded
from holdfast.nodes.etcd.elector import Elected, Elector, Say
from holdfast.nodes.etcd.etcd_errors import EtcdUnreachable
from holdfast.run.nodes.member_watch import MemberWatch
from holdfast.run.nodes.round_source import (
    JobIsOver,
    OpenStore,
    RoundPlace,
    RoundSource,
    ToldToEnd,
    WaitInterrupted,
)
from holdfast.run.nodes.takeover import CarriedJob
from holdfast.run.watch.interface import JobAction
from holdfast.run.watch.watch import Watch

FIRST_CONTACT = 20.0
"""seconds for etcd to answer for the first time: a wrong address is to be said soon"""
ASK_AGAIN = 0.3
SAID_AFTER = 3.0
"""seconds of one and the same wait before the user is told"""
STEP_EVERY = 30.0
"""seconds between two notes of the step for a successor: etcd keeps every one until it compacts"""
LOST = 124
ELECTING = "electing another coordinator through etcd"


class NodeRole(Protocol):
    """The coordinator, or a member, for as long as it lasts."""

    @property
    def rounds(self) -> RoundSource: ...

    @property
    def watch(self) -> Watch | MemberWatch: ...

    def over(self) -> str:
        """Why this launcher cannot be this any more; '' while it can."""

    def say_over(self, why: str, action: str) -> None:
        """To the user, and what is done about it."""

    def hand_over(self, sign: signal.Signals) -> bool:
        """A signal asked this launcher to end: whether the others go on without it."""

    def own_address(self, place: RoundPlace) -> str:
        """Of this node, that others use."""

    def carried(self) -> CarriedJob | None:
        """What a successor has to know; None for a member."""

    def close(self) -> None:
        """Its ranks are gone."""


class RoleMaker(Protocol):
    def coordinate(self, elected: Elected) -> NodeRole:
        """Listen, and have the elector announce where. Raises JobIsOver when the job may not go
        on: it is said."""

    def follow(self, coordinator: Follow) -> NodeRole:
        """Join it. Raises ChannelError."""


class _RoleIsOver(Exception):  # noqa: N818 - its name is what happened
    """While a round was awaited."""


class ElectedLauncher:
    """All calls but none of `say` come from the agent's one thread."""

    def __init__(
        self, elector: Elector, roles: RoleMaker, *, say: Say, join_timeout: float
    ) -> None:
        self._elector, self._roles, self._say = elector, roles, say
        self._join_timeout = join_timeout
        self.role: NodeRole | None = None
        self._over = ""
        self._local_ranks: frozenset[int] = frozenset()
        self._published: CarriedJob | None = None
        self._published_at = 0.0
        self._contact = self._handed_over = False

    def meet(self) -> None:
        """The first election, before there is anything to watch."""
        self.role = self._elect(lambda: None, time.monotonic() + self._join_timeout)

    # --- a source of rounds --------------------------------------------------------------------

    def next_round(self, open_store: OpenStore, told: ToldToEnd) -> RoundPlace:
        deadline = time.monotonic() + self._join_timeout
        while True:
            if self.role is not None and (self._over or self.role.over()):
                self._drop()
            self.role = role = self.role or self._elect(told, deadline)
            try:
                place = role.rounds.next_round(open_store, lambda: _or_over(role, told))  # noqa: B023
            except (_RoleIsOver, JobIsOver):
                if not (why := role.over()):
                    raise
                role.say_over(why, ELECTING)
            else:
                self._elector.in_round(place.start.round)
                self._publish()
                return place

    def own_address(self, place: RoundPlace) -> str:
        return self._now().own_address(place)

    def _drop(self) -> None:
        """The ranks are gone: the others may elect another at once."""
        role, self.role, self._over, self._published = self.role, None, "", None
        if role is not None:
            role.close()
        self._elector.step_down()

    def _elect(self, told: ToldToEnd, deadline: float) -> NodeRole:
        waits = _Waits(self._say)
        began = time.monotonic()
        contact_by = min(deadline, began + FIRST_CONTACT)
        while True:
            if told() is not None:
                raise WaitInterrupted
            try:
                outcome = self._role_or_wait()
            except EtcdUnreachable as problem:
                until = deadline if self._contact else contact_by
                if time.monotonic() > until:
                    raise _unanswered(problem, until - began) from None
                outcome = f"waiting for etcd: {problem.sentence}"
            if not isinstance(outcome, str):
                return outcome
            waits.look(outcome)
            if time.monotonic() > deadline:
                why = f"no coordinator within the join timeout of {self._join_timeout:.0f} s"
                self._say(f"{why}: {outcome}")
                raise JobIsOver(why, LOST)
            time.sleep(ASK_AGAIN)

    def _role_or_wait(self) -> NodeRole | str:
        """What this launcher is from now on, or what it waits for."""
        answer = self._elector.campaign()
        self._contact = True
        if isinstance(answer, JobEnded):
            self._say(answer.why)
            raise JobIsOver(answer.why, LOST)
        if isinstance(answer, Elected):
            return self._roles.coordinate(answer)
        if isinstance(answer, Await):
            return answer.why
        try:
            return self._roles.follow(answer)
        except WrongVersion:
            raise
        except ChannelError as problem:
            return f"cannot join the coordinator that etcd names: {problem.sentence}"

    # --- a watcher -----------------------------------------------------------------------------

    def rank_environment(self, local_rank: int, environment: dict[str, str]) -> dict[str, str]:
        return self._now().watch.rank_environment(local_rank, environment)

    def ranks_started(self, attempt: int, pids: Mapping[int, int]) -> None:
        self._local_ranks = frozenset(pids)
        self._now().watch.ranks_started(attempt, pids)

    def look(self) -> JobAction:
        role = self._now()
        self._over = self._over or role.over()  # before anything that can fail
        if self._over:
            return JobAction.RESTART
        action = role.watch.look()
        self._publish()
        return action

    def culprits(self) -> frozenset[int]:
        """Fencing: another group of ranks may start soon."""
        return self._local_ranks if self._over else self._now().watch.culprits()

    def exiting(self) -> frozenset[int]:
        return frozenset() if self._over else self._now().watch.exiting()

    def fenced(self) -> bool:
        """Ranks that save may take longer than a lease: what it is now counts."""
        self._over = self._over or self._now().over()
        return bool(self._over) or self._now().watch.fenced()

    def waiting_for_exit(self, ranks: Sequence[int], seconds_left: float) -> None:
        self._now().watch.waiting_for_exit(ranks, seconds_left)

    def signal_forwarded(self, sign: signal.Signals, ranks: Sequence[int]) -> None:
        self._now().watch.signal_forwarded(sign, ranks)

    def waits_for_others(self, sign: signal.Signals) -> bool:
        return not self._over and self._now().watch.waits_for_others(sign)

    def told_to_stop(self, sign: signal.Signals) -> None:
        if self.role is None:
            return
        self._handed_over = not self._over and self.role.hand_over(sign)
        if self._handed_over:
            self._publish()
        else:
            self.role.watch.told_to_stop(sign)

    def outlived(self, processes: Sequence[SurvivingProcess], *, ended: bool) -> None:
        self._now().watch.outlived(processes, ended=ended)

    def ranks_stopped(self, unkillable: Sequence[int]) -> None:
        role = self._now()
        if self._over:  # not said before: a terminal that takes nothing keeps no rank alive
            role.say_over(self._over, f"the ranks here were ended; {ELECTING}")
        role.watch.ranks_stopped(unkillable)

    def exit_code(self) -> int:
        return self.role.watch.exit_code() if self.role else LOST

    @property
    def stop_signal(self) -> str:
        return self.role.watch.stop_signal if self.role else ""

    @property
    def acted_on(self) -> tuple[Verdict | None, Scene] | None:
        return self.role.watch.acted_on if self.role else None

    def end_record(self, exit_code: int) -> EndRecord:
        if self.role is not None:
            return self.role.watch.end_record(exit_code)
        return EndRecord(exit_code=exit_code, attempt=0, steps=0, longest_pause=0.0)

    def close(self) -> None:
        if self.role is not None:
            self.role.watch.close()

    def finish(self, exit_code: int) -> None:
        """The launcher ends; its ranks are gone, its last words are said."""
        if self.role is not None:
            if self.role.carried() is not None and not (self._over or self._handed_over):
                self._elector.end_job(f"the job ended with exit code {exit_code}")
            self.role.close()
        self._elector.close()

    # --- inside --------------------------------------------------------------------------------

    def _now(self) -> NodeRole:
        assert self.role is not None, "ranks run in a round, and a round needs a role"
        return self.role

    def _publish(self) -> None:
        """For a successor, when something changed; the step alone not at every look."""
        carried = self.role.carried() if self.role else None
        if carried is None or carried.newest is None or carried == self._published:
            return
        only_the_step = self._published is not None and (
            _without_progress(carried) == _without_progress(self._published)
        )
        now = time.monotonic()
        if not only_the_step or now - self._published_at >= STEP_EVERY:
            self._published, self._published_at = carried, now
            self._elector.publish(carried.newest.round, carried.plain())


def _without_progress(carried: CarriedJob) -> CarriedJob:
    return msgspec.structs.replace(carried, step=0, saved="")


def _unanswered(problem: EtcdUnreachable, seconds: float) -> EtcdUnreachable:
    return EtcdUnreachable(
        f"etcd did not answer within {seconds:.0f} s: {problem.sentence}",
        hint=problem.hint
        or "is it running, and is --rdzv-endpoint its client address (port 2379)?"
        " `curl http://HOST:2379/version`",
    )


def _or_over(role: NodeRole, told: ToldToEnd) -> signal.Signals | None:
    if role.over():
        raise _RoleIsOver
    return told()


class _Waits:
    """Says what is waited for, once it has lasted, and again when that changes."""

    def __init__(self, say: Say) -> None:
        self._say = say
        self.why = ""
        self._since = 0.0
        self._said = ""

    def look(self, why: str) -> None:
        now = time.monotonic()
        if why != self.why:
            self.why, self._since = why, now
        if self._said != why and now - self._since >= SAID_AFTER:
            self._said = why
            self._say(why)
