"""Watches the ranks of one node for the coordinator of several: observes, reports, obeys.

It judges nothing. A rank that died here is the coordinator's to explain: the cause may be on
another node.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Mapping, Sequence

import msgspec

from holdfast import text
from holdfast.analysis.job.journal_records import EndRecord
from holdfast.analysis.scene.scene import Scene, SurvivingProcess
from holdfast.faults.processes import store_host_lost
from holdfast.run.launch import exit_codes
from holdfast.run.launch.places import RunPlaces
from holdfast.run.nodes import lost_coordinator
from holdfast.run.nodes.link.interface import CoordinatorLost
from holdfast.run.nodes.membership import Membership, told_to_stop
from holdfast.run.nodes.messages import (
    AbortRanks,
    EndRound,
    NodeReport,
    RanksGone,
    TakeEvidence,
    ToLauncher,
)
from holdfast.run.nodes.neighbours import Neighbours
from holdfast.run.runs.journal import Journal
from holdfast.run.watch import assembler, deadlines
from holdfast.run.watch.guard import PartGuard
from holdfast.run.watch.interface import JobAction
from holdfast.run.watch.loop_clock import PAUSED, LoopClock, in_words
from holdfast.run.watch.observer import MemoryKills, Observer
from holdfast.run.watch.progress import JobProgress
from holdfast.run.watch.reporter import Reporter
from holdfast.view.run_screen import Screen

REPORT_EVERY = 0.19
"""seconds"""
REPORT_UNHEARD = 5.0
"""the same while the coordinator is not heard: it may be stopped, and its kernel keeps all that is
sent to it, up to a limit at which the connection ends"""
ORDER_COMES = 5.0
"""seconds after a signal in which the coordinator says how it continues; who sent it kills
next, after 30 s or so"""
LATE = 2.5
"""seconds without a sign of the coordinator"""
NOT_HEARD = 7.5
"""seconds of it that are said where they are no proof"""
NEIGHBOURS_ANSWER = 0.3
"""seconds more for their machines: the ranks must end"""
LOST_COORDINATOR = (
    "stopping: without the coordinator no node of this job can go on; the next start resumes from "
    "the newest checkpoint"
)
JOINING_AGAIN = "the ranks here were ended; joining the coordinator again"


class MemberWatch:
    """One node of a job, all its attempts. Called by the agent's one thread."""

    def __init__(
        self,
        membership: Membership,
        *,
        journal: Journal,
        screen: Screen,
        places: RunPlaces,
        memory_kills: MemoryKills,
        observer: Observer | None = None,
    ) -> None:
        """`observer`: of this node, where another watch had it before."""
        self.membership, self.screen = membership, screen
        self.observer = observer or Observer(places=places, memory_kills=memory_kills)
        self.reporter = Reporter(journal, screen, membership.node, places.paths)
        self.guard = PartGuard(lambda part, bug: self.reporter.part_failed(part, bug, self.attempt))
        self.progress = JobProgress()
        self.stop_signal = ""
        self.acted_on: tuple[None, Scene] | None = None
        """as the coordinator's watch has it; a member has no verdict of its own"""
        self._exit_code = 0
        self._unkillable: Sequence[int] = ()
        self._new_round(0.0)

    def _new_round(self, now: float) -> None:
        self.clock = LoopClock(now, time.time())
        self._order: EndRound | None = None
        self._lost: CoordinatorLost | None = None
        self._neighbours: Neighbours | None = None
        self._asked = False
        self._told_at: float | None = None
        self._reported_at = 0.0
        self._awake_since = now
        self._said_silent = 0.0
        """the longest silence of the coordinator since it was said; 0 while it is heard"""

    @property
    def attempt(self) -> int:
        return self.observer.attempt

    # --- what the agent calls ------------------------------------------------------------------

    def rank_environment(self, local_rank: int, environment: dict[str, str]) -> dict[str, str]:
        """What a rank about to start gets."""
        if place := self.membership.place:
            self.observer.saved = place.start.saved
        return self.observer.rank_environment(local_rank, environment)

    def ranks_started(self, attempt: int, pids: Mapping[int, int]) -> None:
        self._new_round(now := time.monotonic())
        if place := self.membership.place:
            self.observer.join_round(place.start, place.node)
            others = {n.name: n.addresses for n in place.start.nodes if n.name != place.node}
            self._neighbours = Neighbours(others, place.start.store_port)
            self._neighbours.ask_while_well(but=place.start.store_node)
        self.observer.ranks_started(attempt, pids, now, steps=self.progress.steps)
        self.progress.new_attempt(now)
        self.reporter.attempt(attempt, self.observer.ranks)

    def look(self) -> JobAction:
        if self.ranks_must_end():
            return self._step()
        now = time.monotonic()
        if late := self.clock.lateness(now):
            self.observer.reset_timers(now, late=late)
            self._awake_since = now
            if late >= PAUSED:
                self.screen.say(in_words(self.membership.node, late))
        self._take_orders()
        died = self._observe(now)
        silent = self.membership.silent()
        every = REPORT_EVERY if silent < LATE else REPORT_UNHEARD
        if died or now >= self._reported_at + every:
            self.guard.run("the report to the coordinator", lambda: self._report(now))
        self._ask_neighbours()
        self._say_whether_coordinator_is_heard(silent)
        self.clock.done(time.monotonic())
        return self._step()

    def ranks_must_end(self) -> bool:
        """Whether the coordinator is lost. Looked at before anything that can fail, and said only
        when the ranks are gone: the others may start again without them."""
        lost = self.membership.lost()
        if lost and not self._lost:
            self.last_orders()
            if self._order is None:
                self._lost = lost
                self._exit_code = exit_codes.STOPPED_BY_VERDICT
                if not lost.others_may_start:
                    self.membership.lift_fence()
        return self._lost is not None

    def last_orders(self) -> None:
        """What the coordinator said before it was lost counts."""
        self.guard.run("the coordinator's last orders", self._take_orders)

    def _take_orders(self) -> None:
        for message in self.membership.news():
            self._obey(message)

    def _step(self) -> JobAction:
        if self._lost:
            again = self.membership.may_join_again(self._lost)
            return JobAction.RESTART if again else JobAction.STOP
        if self._order is None:
            return JobAction.HOLD  # also when all ranks here have exited: others may run
        if self._order.action == "done":
            return JobAction.KEEP_RUNNING
        if self._order.action == "stop" and self._told_at is not None:
            return JobAction.HOLD  # the agent ends the ranks for the signal, with its exit code
        return JobAction.RESTART if self._order.action == "restart" else JobAction.STOP

    def culprits(self) -> frozenset[int]:
        ranks = [rank.rank for rank in self.observer.ranks]
        if self._lost:  # the others may start again without this node: no rank may outlive it
            return self.observer.launched(ranks)
        guilty = self._order.culprits if self._order else ()
        return self.observer.launched(set(guilty) & set(ranks)) - self.exiting()

    def exiting(self) -> frozenset[int]:
        if self._lost:
            return frozenset()
        self.observer.read_pages(now := time.monotonic())
        return self.observer.launched(exit_codes.exiting(self._scene(now)))

    def fenced(self) -> bool:
        """Also once the coordinator has said what comes next, unless nothing does."""
        if self._order is not None and self._order.is_the_last:
            return False
        lost = self.membership.lost()
        return lost is not None and lost.others_may_start

    def waiting_for_exit(self, ranks: Sequence[int], seconds_left: float) -> None:
        numbers = self.observer.ranks_of(ranks)
        self.reporter.waiting_for_exit(numbers, seconds_left, by_hand=self.stop_signal == "SIGINT")

    def signal_forwarded(self, sign: signal.Signals, ranks: Sequence[int]) -> None:
        self.reporter.signal_forwarded(self.attempt, sign.name, self.observer.ranks_of(ranks))

    def waits_for_others(self, sign: signal.Signals) -> bool:
        now = time.monotonic()
        if self._told_at is None:
            self._told_at, self.stop_signal = now, sign.name
            self.membership.send(told_to_stop(sign))
            self.screen.say(f"{sign.name}: asking the coordinator on {self.membership.coordinator}")
        return self._order is None and not self._lost and now < self._told_at + ORDER_COMES

    def told_to_stop(self, sign: signal.Signals) -> None:
        self.stop_signal = sign.name
        scene = self._scene(time.monotonic())
        self.reporter.action("stop", scene, reason=sign.name, steps=self.progress.steps)

    def outlived(self, processes: Sequence[SurvivingProcess], *, ended: bool) -> None:
        scene = self._scene(time.monotonic())
        if ended:
            self.reporter.outlived(processes, scene, steps=self.progress.steps)
        else:
            self.reporter.left_alone(processes, attempt=scene.attempt)

    def ranks_stopped(self, unkillable: Sequence[int]) -> None:
        self._unkillable = unkillable
        self.guard.run("the last report", lambda: self._report(time.monotonic()))
        if not unkillable:
            self.membership.send(RanksGone(round=self.membership.round))
        if self._lost:
            again = self.membership.may_join_again(self._lost)
            action = JOINING_AGAIN if again else LOST_COORDINATOR
            self.say_who_is_lost(self._lost, action=action, last=not again)
        self.observer.ranks_stopped()

    def exit_code(self) -> int:
        return self._exit_code

    def close(self) -> None:
        self.guard.run("the last look", self._observe_last)
        self.observer.close()
        why = f"stopped by {self.stop_signal}" if self.stop_signal else ""
        if self._unkillable:
            why = f"process {text.numbers(self._unkillable)} did not exit after SIGKILL"
        self.membership.close(why, ranks_gone=not self._unkillable)

    def end_record(self, exit_code: int) -> EndRecord:
        """The last line of this node's journal."""
        return EndRecord(
            exit_code=exit_code,
            attempt=self.attempt,
            steps=self.progress.steps,
            longest_pause=round(self.progress.longest_pause, 3),
            pause_at="",
            group_timeout=self.progress.group_timeout,
        )

    # --- the coordinator's orders ----------------------------------------------------------------

    def _obey(self, message: ToLauncher) -> None:
        if isinstance(message, TakeEvidence) and message.round == self.membership.round:
            number = message.number
            self.guard.run("evidence", lambda: self.observer.take_evidence(number))
            self.observer.keep_evidence()
            self._reported_at = 0.0
        elif isinstance(message, AbortRanks) and message.round == self.membership.round:
            wanted = set(message.ranks)
            own = [rank.pid for rank in self.observer.watched() if rank.rank in wanted]
            deadlines.abort(own)
        elif isinstance(message, EndRound) and message.round == self.membership.round:
            self._order = self._order or message
            self._exit_code = message.exit_code
            if message.no_save:
                self.observer.no_save_is_possible(self.attempt)
            if message.action != "restart":
                self.membership.job_is_over(for_all=message.is_the_last)

    def _ask_neighbours(self) -> None:
        """The answers are here when the coordinator is lost."""
        late = self.membership.silent() > LATE
        if late and not self._asked and self._neighbours and self._order is None:
            self._neighbours.ask()
        self._asked = late

    def _say_whether_coordinator_is_heard(self, silent: float) -> None:
        """Where the lease is so long that it may come back."""
        if self._lost or self._order is not None:
            return
        coordinator = self.membership.coordinator
        if silent >= NOT_HEARD and time.monotonic() - self._awake_since >= NOT_HEARD:
            if not self._said_silent:
                self.guard.run("the notice", lambda: self._say_silent(coordinator, silent))
            self._said_silent = silent
        elif self._said_silent and silent < LATE:
            self.screen.say(f"{coordinator} is heard again, after {self._said_silent:.1f} s")
            self._said_silent = 0.0

    def _say_silent(self, coordinator: str, silent: float) -> None:
        answers = self._neighbours.answers(0.0) if self._neighbours else {}
        found = store_host_lost.coordinator_not_heard(
            coordinator=coordinator,
            own=self.membership.node,
            silent=silent,
            answers=answers.get(coordinator),
        )
        scene = self._scene(time.monotonic())
        self.reporter.judgement(found, scene, action="", steps=self.progress.steps, evidence="")

    def say_who_is_lost(self, lost: CoordinatorLost, *, action: str, last: bool) -> None:
        """`last`: the job ends with it."""
        self.guard.run("the verdict", lambda: self._say_who_is_lost(lost, action, last=last))

    def _say_who_is_lost(self, lost: CoordinatorLost, action: str, *, last: bool) -> None:
        found = lost_coordinator.judge(
            lost,
            own=self.membership.node,
            coordinator=self.membership.coordinator,
            answers=self._neighbours.answers(NEIGHBOURS_ANSWER) if self._neighbours else {},
        )
        if not last:  # nothing is left for the user to do
            found = msgspec.structs.replace(found, fix="")
        scene = self._scene(time.monotonic())
        self.reporter.judgement(
            found, scene, action=action, steps=self.progress.steps, evidence="", last=last
        )
        if not last:
            self.reporter.action("restart", scene, reason=action, steps=self.progress.steps)

    # --- observing -----------------------------------------------------------------------------

    def _scene(self, now: float) -> Scene:
        observer = self.observer
        return assembler.scene_of_node(observer.report(now), observer.attempt, observer.started_at)

    def _observe(self, now: float) -> bool:
        """Whether a rank exited."""
        died = self.observer.look(now)
        for rank in died:
            assert rank.death
            self.reporter.exited(self.attempt, rank, rank.death.code)
        self.guard.run("the kernel's counters", lambda: self.observer.read_counters(now))
        self.guard.run(
            "your rules", lambda: self.reporter.rule_remarks(self.observer.read_rules(now))
        )
        return bool(died)

    def _observe_last(self) -> None:
        self._observe(time.monotonic())

    def _report(self, now: float) -> None:
        self._reported_at = now
        report = self.observer.report(now)
        self.progress.look(report.ranks, now)
        self.membership.send(self._with_events(report))

    def _with_events(self, report: NodeReport) -> NodeReport:
        told = [event.told for event in self.observer.new_events() if event.told]
        events = tuple((rank, dict(event)) for rank, event in told)
        return msgspec.structs.replace(report, events=events) if events else report
