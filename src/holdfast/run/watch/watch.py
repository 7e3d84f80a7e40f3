"""Watches a job, on the node that coordinates: makes one scene of the reports of all nodes every
tick, and when something is wrong has evidence taken, asks for a verdict, and has all nodes act.

A job on one machine has no other nodes (peers.py), and goes the same way. This file only ties the
pieces together; what it decides with is pure (pace, verdict, decide).
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Mapping, Sequence
from typing import Literal

import msgspec

from holdfast.analysis.job import pace, ras_question, start_failure
from holdfast.analysis.job.journal_records import EndRecord
from holdfast.analysis.scene import exits, overruns
from holdfast.analysis.scene.scene import Failure, Policy, RankView, Scene, SurvivingProcess
from holdfast.findings import Verdict
from holdfast.run.launch import exit_codes, scheduler, terminate
from holdfast.run.launch.places import RunPlaces
from holdfast.run.runs.journal import Journal
from holdfast.run.watch import assembler, deadlines, decide, node_policy, restart, verdict
from holdfast.run.watch.evidence_requests import EvidenceRequests
from holdfast.run.watch.guard import PartGuard
from holdfast.run.watch.interface import JobAction
from holdfast.run.watch.loop_clock import PAUSED, LoopClock, in_words
from holdfast.run.watch.observer import MemoryKills, Observer
from holdfast.run.watch.other_nodes import OtherNodes
from holdfast.run.watch.peers import NodePeers, NoPeers
from holdfast.run.watch.progress import JobProgress
from holdfast.run.watch.remarks import Remarks
from holdfast.run.watch.reporter import Reporter
from holdfast.run.watch.stalls import StallMemory
from holdfast.view import run_screen

ACTION = "an action"
"""the purpose of evidence that is taken when the job is about to be ended"""
SETTLE = 0.25
"""seconds after a death in which the others may still say what they saw"""
UNWIND = 2.0
"""seconds in which a rank that raised may end by itself: its atexit handlers still run"""
LEAVING = 5.0
"""seconds more for one that the kernel is taking apart: how it ended may be the cause"""
WHOLE_LOOK = 0.19
"""seconds between two looks at everything while all is well; in between only deaths count"""


class Watch:
    """One job, all its attempts. Called by the agent's one thread (run/launch/agent.py)."""

    def __init__(
        self,
        *,
        policy: Policy,
        journal: Journal,
        screen: run_screen.Screen,
        places: RunPlaces,
        memory_kills: MemoryKills,
        peers: NodePeers | None = None,
        observer: Observer | None = None,
    ) -> None:
        """`observer`: of this node, where another watch had it before."""
        self.policy, self.screen = policy, screen
        self.peers = peers or NoPeers()
        self.stalls = StallMemory()
        self.progress = JobProgress()
        self.observer = observer or Observer(places=places, memory_kills=memory_kills)
        self.reporter = Reporter(journal, screen, self.observer.host, places.paths, self.peers)
        self.guard = PartGuard(lambda part, bug: self.reporter.part_failed(part, bug, self.attempt))
        self.remarks = Remarks(screen)
        self.restarts = 0
        self.failures: tuple[Failure, ...] = ()
        self.stop_signal = ""
        self._exit_code = 0
        self._new_attempt(0.0)

    def _new_attempt(self, now: float) -> None:
        self.clock = LoopClock(now, time.time())
        self.look_whole_at = 0.0
        self.calm = self.done = False
        self.stalls.new_attempt()
        self.settle_until = 0.0
        self.over_limit: Verdict | None = None
        self.aborted_at = 0.0
        self._culprits: frozenset[int] = frozenset()
        self.evidence = EvidenceRequests(self.peers)
        self.others = OtherNodes(self.peers)
        self.acted_on: tuple[Verdict | None, Scene] | None = None

    @property
    def attempt(self) -> int:
        return self.observer.attempt

    # --- what the agent calls ------------------------------------------------------------------

    def rank_environment(self, local_rank: int, environment: dict[str, str]) -> dict[str, str]:
        """What a rank about to start gets."""
        return self.observer.rank_environment(local_rank, environment)

    def ranks_started(self, attempt: int, pids: Mapping[int, int]) -> None:
        self._new_attempt(now := time.monotonic())
        if round_ := self.peers.round():
            self.observer.join_round(round_, self.others.own_name(round_))
        self.observer.ranks_started(attempt, pids, now, steps=self.progress.steps)
        self.progress.new_attempt(now)
        self.reporter.attempt(attempt, self.observer.ranks)

    def look(self) -> JobAction:
        step = self._look()
        if step is JobAction.KEEP_RUNNING and self.peers.round() and not self.done:
            return JobAction.HOLD  # ranks here may exit right after this look, and others run
        return step

    def _look(self) -> JobAction:
        now = time.monotonic()
        self.peers.look(now)
        if late := self.clock.lateness(now):
            # The ranks could not work while we could not: all timers start again.
            self._restart_timers(now)
            self.observer.reset_timers(now, late=late)
            if late >= PAUSED and self.peers.round():
                self.reporter.screen.say(in_words(self.observer.host, late))
        if self.clock.wall_was_set(now, time.time()):
            self.stalls.restart_timers(now)  # recorders keep wall time
        if self.calm and now < self.look_whole_at and not self.observer.a_rank_died():
            return JobAction.KEEP_RUNNING
        self.look_whole_at = now + WHOLE_LOOK
        self._observe(now)
        scene = self._scene(now)
        self.guard.run("the note of progress", lambda: self._report_progress(scene))
        step = JobAction.HOLD if self.evidence.awaited(now) else self._judge(scene)
        self.calm = step is JobAction.KEEP_RUNNING
        self.guard.run("the status line", lambda: self._show_status(scene))
        self.guard.run("a remark", lambda: self.remarks.look(self.observer.ranks, now))
        self.clock.done(time.monotonic())
        return step

    def _show_status(self, scene: Scene) -> None:
        stalled_by = self.reporter.waits_for()
        line = run_screen.status(scene, restarts=self.restarts, waits_for=stalled_by)
        self.screen.status(line)
        self.reporter.screen.status(line, scene.now)

    def culprits(self) -> frozenset[int]:
        return self._culprits - self.exiting()

    def exiting(self) -> frozenset[int]:
        self.observer.read_pages(now := time.monotonic())
        return self.observer.launched(exit_codes.exiting(self._scene(now)))

    def fenced(self) -> bool:
        return False  # this node decides whether there is another start

    def waiting_for_exit(self, ranks: Sequence[int], seconds_left: float) -> None:
        numbers = self.observer.ranks_of(ranks)
        self.reporter.waiting_for_exit(numbers, seconds_left, by_hand=self.stop_signal == "SIGINT")

    def signal_forwarded(self, sign: signal.Signals, ranks: Sequence[int]) -> None:
        self.reporter.signal_forwarded(self.attempt, sign.name, self.observer.ranks_of(ranks))

    def waits_for_others(self, sign: signal.Signals) -> bool:
        del sign
        return False

    def told_to_stop(self, sign: signal.Signals) -> None:
        self.stop_signal = sign.name
        scene = self._scene(time.monotonic())
        if found := self._verdict(scene):
            self.reporter.told_to_stop(found, scene, steps=self.progress.steps)
        self.reporter.action("stop", scene, reason=sign.name, steps=self.progress.steps)
        self.others.end_round("stop", reason=f"stopped by {sign.name}", exit_code=128 + sign)

    def outlived(self, processes: Sequence[SurvivingProcess], *, ended: bool) -> None:
        scene = self._scene(time.monotonic())
        if ended:
            self.reporter.outlived(processes, scene, steps=self.progress.steps)
        else:
            self.reporter.left_alone(processes, attempt=scene.attempt)

    def ranks_stopped(self, _unkillable: Sequence[int] = ()) -> None:
        if self.acted_on:
            deaths = self.observer.all_deaths()
            self._exit_code = exit_codes.exit_code_of(*self.acted_on, deaths)
        self._last_of_rules()
        self.observer.ranks_stopped()

    def _last_of_rules(self) -> None:
        self.guard.run("your rules", lambda: self._read_rules(time.monotonic(), last=True))

    def exit_code(self) -> int:
        return self._exit_code

    def close(self) -> None:
        # Ranks that ended well since the last look: their last steps and exits count too.
        self.guard.run("the last look", lambda: self._observe(time.monotonic()))
        self._last_of_rules()
        self.observer.close()
        self._report_events(time.monotonic())

    def end_record(self, exit_code: int) -> EndRecord:
        """The last line of the journal."""
        return EndRecord(
            exit_code=exit_code,
            attempt=self.observer.attempt,
            steps=self.progress.steps,
            longest_pause=round(self.progress.longest_pause, 3),
            pause_at=self.reporter.pause_at,
            group_timeout=self.progress.group_timeout,
        )

    # --- looking -------------------------------------------------------------------------------

    def _scene(self, now: float) -> Scene:
        observer, told = self.observer, self.stop_signal
        own = observer.report(now)
        scene = msgspec.structs.replace(
            assembler.scene_of_node(own, observer.attempt, observer.started_at),
            longest_pause=self.progress.longest_pause,
            pauses=tuple(self.progress.pauses),
            told_to_stop=told,
            failures=self.failures,
            best_step=self.stalls.best_step,
            checkpoints=observer.events.account,
            numbers=observer.events.numbers.account(),
            scheduler=scheduler.read(os.environ, wall=time.time()) if told else None,
            probes=self.peers.probes(),
            ras=observer.ras.look,
        )
        round_ = self.peers.round()
        return assembler.with_peers(scene, own, round_, self.peers.states()) if round_ else scene

    def _observe(self, now: float) -> None:
        attempt = self.observer.attempt
        for rank in self.observer.look(now):
            assert rank.death
            self.reporter.exited(attempt, rank, rank.death.code)
        self.guard.run("the kernel's counters", lambda: self.observer.read_counters(now))
        self.guard.run("the reports of other nodes", lambda: self._take_in_reports(now))
        self.guard.run("your rules", lambda: self._read_rules(now))
        self.guard.run("the events of the ranks", lambda: self._report_events(now))

    def _read_rules(self, now: float, *, last: bool = False) -> None:
        """`last`: of this attempt; what was found so far is said now."""
        rules = self.observer.places.rules
        if not rules.rules:
            return
        if last:
            rules.finish(now)
        self.reporter.rule_remarks(self.observer.read_rules(now))
        living = [view.rank for view in self._scene(now).ranks if view.death is None]
        until = rules.searched_until(now)
        tracker = self.observer.events.rules
        due = tracker.last_lines() if last else tracker.notices(now, living, until=until)
        steps = self.progress.steps
        self.reporter.rule_notices(due, attempt=self.attempt, steps=steps, last=last)

    def _take_in_reports(self, now: float) -> None:
        if self.others.slept():
            self._restart_timers(now)
        for rank, event in self.peers.new_events():
            self.observer.add_event(rank, event)

    def _restart_timers(self, now: float) -> None:
        self.stalls.restart_timers(now)
        self.progress.restart_timers(now)

    def _report_progress(self, scene: Scene) -> None:
        if self.progress.look(scene.ranks, scene.now):
            self.reporter.pause_is_over(self.progress.longest_pause)
            self.reporter.progress(scene, self.progress.steps, self.observer.ranks)

    def _report_events(self, now: float) -> None:
        events = self.observer.new_events()
        if events or self.observer.events.numbers.is_fresh(now):
            self.reporter.rank_events(events, self._scene(now))

    def _evidence_is_here(self, purpose: str) -> bool:
        """Asks for it first; with other nodes it may be here at a later look only."""
        if self.evidence.came_for(purpose):
            return True
        number = self.evidence.ask(purpose, time.monotonic())
        ending = purpose == ACTION and ras_question.may_be_asked(self._scene(time.monotonic()))
        self.guard.run("evidence", lambda: self.observer.take_evidence(number, ask_ras=ending))
        scene = self._scene(time.monotonic())
        self.reporter.evidence(scene, self.observer.evidence_folder)
        return not self.evidence.awaited(time.monotonic()) and self.evidence.came_for(purpose)

    # --- judging -------------------------------------------------------------------------------

    def _judge(self, scene: Scene) -> JobAction:
        if scene.nodes and (action := self._look_at_nodes(scene)):
            return action
        if any(exit_codes.failed(view) or exit_codes.raised(view) for view in scene.ranks):
            return self._after_an_end(scene)
        self.settle_until = 0.0
        if self.over_limit or overruns.overrun_ranks(scene):
            return self._enforce_limits(scene)
        if node_policy.needs_a_look(scene) or self.stalls.may_be_wrong(scene):
            return self._with_evidence(scene)
        self.stalls.is_over()
        self.reporter.remember_stall(None)
        return JobAction.KEEP_RUNNING

    def _look_at_nodes(self, scene: Scene) -> JobAction | None:
        if node_policy.all_ended_well(scene):
            self.others.end_round("done", reason="all ranks exited with 0")
            self.done = True
            return JobAction.KEEP_RUNNING
        if action := self._for_other_nodes(scene):
            return action
        if node_policy.more_may_be_lost(scene):
            return JobAction.HOLD
        self.others.probe(scene, timers_since=self.stalls.timers_since)
        return None

    def _for_other_nodes(self, scene: Scene) -> JobAction | None:
        """A node was told to stop, or waits to be taken in: ranks save, and the group re-forms."""
        change = node_policy.change_of_nodes(
            scene, self.peers, self.policy, since=self.observer.started_at
        )
        if change is None or change.action == "hold":
            return None if change is None else JobAction.HOLD
        found = self._verdict(scene) if change.told else None
        if found:
            self._announce(found, scene, action=change.reason)
        again = change.action == "restart"
        self.reporter.action(
            "restart" if again else "stop", scene, reason=change.reason, steps=self.progress.steps
        )
        if not found:
            self.reporter.screen.say(change.reason)
        self._exit_code = change.exit_code
        self.others.end_round(
            "restart" if again else "stop",
            reason=change.reason,
            exit_code=change.exit_code,
            without=change.told,
        )
        return JobAction.RESTART if again else JobAction.STOP

    def _after_an_end(self, scene: Scene) -> JobAction:
        """Evidence first, then a moment for the others' last words, then the verdict."""
        if not self.settle_until:
            for view in filter(exit_codes.raised, scene.ranks):
                self.reporter.rank(scene.attempt, view, "raised")
            self._evidence_is_here("an end")
            self.settle_until = time.monotonic() + UNWIND
            return JobAction.HOLD  # evidence took its time: read first what ranks say since
        if any(exit_codes.failed(view) for view in scene.ranks):
            self.settle_until = min(self.settle_until, scene.now + SETTLE)
        all_exited = all(view.death for view in scene.ranks)
        if time.monotonic() < self.settle_until and not all_exited:
            return JobAction.HOLD
        if start_failure.others_may_follow(scene):
            return JobAction.HOLD
        if node_policy.is_lost(scene):
            return self._decide(scene)
        leaving = any(self._is_leaving(view) for view in scene.ranks if not view.death)
        if leaving and time.monotonic() < self.settle_until + LEAVING:
            return JobAction.HOLD
        self.observer.ask_kernel()
        return self._decide(self._scene(time.monotonic()))

    def _is_leaving(self, view: RankView) -> bool:
        """How it ends is not known yet, and may be the cause."""
        says_so = exits.is_leaving(view) and not exit_codes.raised(view)
        return says_so or (self._is_here(view) and terminate.is_leaving(view.pid))

    def _is_here(self, view: RankView) -> bool:
        """Its pid means a process of this node."""
        return view.host == self.observer.host

    def _enforce_limits(self, scene: Scene) -> JobAction:
        """A section's time is over: evidence, the sentence, then the signal its author asked for.

        What we say of it is settled here: once the rank is gone, its victims' last words and
        its own abort would suggest another cause.
        """
        if self.over_limit:
            waited = scene.now - self.aborted_at
            return JobAction.HOLD if waited < deadlines.PATIENCE else self._decide(scene)
        if not self._evidence_is_here("a deadline"):
            return JobAction.HOLD
        self.observer.read_pages(time.monotonic())
        scene = self._scene(time.monotonic())
        over = overruns.overrun_ranks(scene)
        found = self._verdict(scene)
        if not over or not found:  # it ended while we looked
            return JobAction.KEEP_RUNNING
        self._announce(found, scene, action="")
        ranks = [view.rank for view in over]
        self.reporter.aborts(scene.attempt, ranks)
        deadlines.abort(view.pid for view in over if self._is_here(view))
        self.peers.abort(ranks)
        self.over_limit, self.aborted_at = found, time.monotonic()
        return JobAction.HOLD

    def _with_evidence(self, scene: Scene) -> JobAction:
        if self.observer.evidence_age(scene.now) >= self.stalls.pause_between_looks(scene):
            if not self._evidence_is_here("a stall"):
                return JobAction.HOLD
            scene = self._scene(time.monotonic())
        return self._decide(scene)

    def _decide(self, scene: Scene) -> JobAction:
        found = self.over_limit or self._verdict(scene)
        self.stalls.remember(scene, found)
        decision = decide.decide(scene.now, scene, found, self.policy, self.stalls.history)
        if decision.action == "hold":
            return JobAction.HOLD
        if decision.action != "go-on" and self._is_out_of_date(found, scene):
            # Positions seen a while ago: a job that takes no steps may have moved on since.
            if not self._evidence_is_here(ACTION):
                return JobAction.HOLD
            return self._decide(self._scene(time.monotonic()))
        if decision.action == "go-on":
            said = found is not None and node_policy.may_be_said(scene, found)
            if found and said and self.stalls.worth_saying(scene, found):
                self.reporter.noticed(found)
                self._announce(found, scene, action="")
            self.reporter.remember_stall(self.stalls.named(found))
            return JobAction.KEEP_RUNNING
        return self._act(decision, found, scene)

    def _verdict(self, scene: Scene) -> Verdict | None:
        opinion = verdict.consider(scene, timers_since=self.stalls.timers_since)
        self.reporter.own_faults(opinion.broken, attempt=scene.attempt)
        return opinion.verdict

    def _is_out_of_date(self, found: Verdict | None, scene: Scene) -> bool:
        if found is None or found.certain or exits.endings(scene):
            return False
        old = self.observer.evidence_age(time.monotonic()) >= pace.LOOK_AGAIN
        return old or (ras_question.may_be_asked(scene) and self.observer.ras.may_know_more())

    def _act(self, decision: decide.Decision, found: Verdict | None, scene: Scene) -> JobAction:
        again = decision.action == "restart"
        reason = node_policy.reason(decision, found, self.peers)
        # The root cause comes last: it is what remains on the terminal.
        if decision.verdict and decision.verdict != found:
            self._announce(decision.verdict, scene, action=reason)
        kill: frozenset[int] = frozenset()
        if found:
            kill = node_policy.to_kill_at_once(found, scene)
            self._culprits = self.observer.launched(kill)
            self._announce(found, scene, action=reason, last=not again)
            self.observer.no_save_is_possible(scene.attempt)
        self.acted_on = (found, scene)
        self._exit_code = exit_codes.exit_code_of(found, scene, {})
        self.failures = (*self.failures, restart.failure_of(scene, found))
        idle = self.progress.idle(scene.now)
        action: Literal["restart", "stop"] = "restart" if again else "stop"
        self.reporter.action(action, scene, reason=reason, steps=self.progress.steps, idle=idle)
        self.others.end_round(
            action,
            reason=reason,
            exit_code=self._exit_code,
            kill=kill,
            no_save=found is not None,
            without=node_policy.left_out(found, self.peers),
        )
        self.restarts += again
        return JobAction.RESTART if again else JobAction.STOP

    def _evidence_folder(self) -> str:
        """As every node may read it."""
        folder = self.observer.evidence_folder
        return f"{self.observer.host}:{folder}" if folder and self.peers.states() else folder

    def _announce(self, found: Verdict, scene: Scene, *, action: str, last: bool = False) -> None:
        self.reporter.judgement(
            found,
            scene,
            action=action,
            steps=self.progress.steps,
            evidence=self._evidence_folder(),
            last=last,
        )
        self.observer.keep_evidence()
