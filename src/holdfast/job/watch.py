"""The watcher of a job: looks at the ranks every tick, and when something is wrong takes
evidence, asks for a verdict, and tells the agent what to do.

This file only ties the pieces together; what it decides with is pure (habit, verdict, decide).
"""

from __future__ import annotations

import os
import shutil
import signal
import socket
import time
from collections.abc import Callable, Mapping
from mmap import mmap

from holdfast import beat_page, endings, scene_words
from holdfast.faults import limit_exceeded
from holdfast.job import decide, evidence, habit, overrun, socket_folder, verdict
from holdfast.job.agent import Step
from holdfast.job.journal import Journal
from holdfast.job.observe import Watched
from holdfast.job.teller import Teller
from holdfast.model import Verdict
from holdfast.paths import RunPaths
from holdfast.probe import activity
from holdfast.probe.deaths import DeathWatch
from holdfast.rank import delivery
from holdfast.signals import Failure, Policy, RankView, Scene
from holdfast.view import run_screen

SETTLE = 0.25
"""seconds after a death in which the others may still say what they saw"""
UNWIND = 2.0
"""seconds in which a rank that raised may end by itself: its atexit handlers still run"""
FEEL_EVERY = 1.0
"""seconds between two looks at the kernel's counters"""
LOOK_AGAIN = 2.0
"""seconds between two looks at a stall that goes on, at first"""
LOOK_AT_LEAST = 60.0
"""seconds between them in the end"""
LATE = 1.0
"""seconds: if our own loop was this late, the machine slept or starved, not the job"""
NOTE_EVERY = 60.0
"""seconds between two notes of progress in the journal"""
SLOW = "slow-rank"
"""the one notice that steps do not refute"""
STOPPED_BY_VERDICT = 124


MemoryKills = Callable[[], "int | None"]
"""how many processes of our cgroup the kernel has killed for memory so far; None when unknown"""


class Watch:
    """One job, all its attempts. Called by the agent's one thread (job/agent.py, Watcher)."""

    def __init__(
        self,
        *,
        policy: Policy,
        journal: Journal,
        screen: run_screen.Screen,
        paths: RunPaths | None,
        memory_kills: MemoryKills,
    ) -> None:
        self.policy, self.journal, self.screen, self.paths = policy, journal, screen, paths
        self.memory_kills = memory_kills
        self.host = socket.gethostname()
        self.teller = Teller(journal, screen, self.host)
        self.sockets = socket_folder.make()
        self.deaths = DeathWatch()
        self.attempt = 0
        self.restarts = 0
        self.ranks: list[Watched] = []
        self.pages: dict[int, tuple[int, mmap]] = {}
        self.failures: tuple[Failure, ...] = ()
        self.longest_pause = 0.0
        self._code = 0
        self._culprits: frozenset[int] = frozenset()
        self._told = ""
        self._transport_told = False
        self._new_attempt(0.0)

    def _new_attempt(self, now: float) -> None:
        self.started_at = self.last_look = self.felt_at = self.progress_at = now
        self.most_steps = 0
        self.best_step = 0.0
        self.history = decide.History()
        self.kills_before = self.memory_kills()
        self.evidence_at = self.evidence_wall = 0.0
        self.evidence_number = 0
        self.held_up_since = 0.0
        self.evidence_folder = ""
        self.said: tuple[str, tuple[int, ...]] | None = None
        self.settle_until = 0.0
        self.noted_at = now
        self.overrun: Verdict | None = None
        self.aborted_at = 0.0

    # --- what the agent calls ------------------------------------------------------------------

    def dress(self, local_rank: int, environment: dict[str, str]) -> dict[str, str]:
        """The environment of a rank about to start: its page, its socket, its last words."""
        self.pages[local_rank] = beat_page.create()
        return delivery.environment(
            # torch hands us only what it adds; HOLDFAST=off and PYTHONPATH are the user's own.
            {**os.environ, **environment},
            page=f"/proc/{os.getpid()}/fd/{self.pages[local_rank][0]}",
            words=self._words_file(environment, local_rank),
            socket=self._socket(local_rank),
            launcher_pid=os.getpid(),
        )

    def ranks_started(self, attempt: int, pids: Mapping[int, int]) -> None:
        now = time.monotonic()
        self.attempt = attempt
        self._new_attempt(now)
        self.ranks = [
            Watched(
                rank=local_rank,  # one machine: the local rank is the rank
                local_rank=local_rank,
                pid=pid,
                host=self.host,
                page=self.pages[local_rank][1],
                words_file=self._words_file({}, local_rank),
                stderr_file=self.paths.stderr(attempt, local_rank) if self.paths else "",
                socket=self._socket(local_rank),
                started_at=now,
            )
            for local_rank, pid in sorted(pids.items())
        ]
        for rank in self.ranks:
            self.deaths.watch(rank.pid)
            self.teller.rank(attempt, rank, "started")

    def look(self) -> Step:
        now = time.monotonic()
        if now - self.last_look > LATE:
            self._rest(now, late=now - self.last_look)
        self.last_look = now
        self._hear(now)
        scene = self._scene(now)
        step = self._judge(scene)
        self.screen.status(run_screen.status(scene, restarts=self.restarts))
        self.last_look = time.monotonic()  # evidence takes its time, and is not lateness
        return step

    def culprits(self) -> frozenset[int]:
        return self._culprits

    def told_to_stop(self, sign: signal.Signals) -> None:
        self._told = sign.name
        scene = self._scene(time.monotonic())
        found = verdict.judge(scene)
        if found:
            self._announce(found, scene, action="end the job, as told")
        self.journal.write("action", action="stop", attempt=self.attempt, reason=sign.name)

    def ranks_stopped(self) -> None:
        for descriptor, page in self.pages.values():
            page.close()
            os.close(descriptor)
        self.pages = {}
        self.ranks = []

    def exit_code(self) -> int:
        return self._code

    def close(self) -> None:
        self.deaths.close()
        shutil.rmtree(self.sockets, ignore_errors=True)

    # --- looking -------------------------------------------------------------------------------

    def _words_file(self, environment: Mapping[str, str], local_rank: int) -> str:
        attempt = int(environment.get("TORCHELASTIC_RESTART_COUNT", self.attempt))
        if self.paths is None:
            return os.path.join(self.sockets, f"{attempt}.{local_rank}.words")
        return self.paths.last_words(attempt, local_rank)

    def _socket(self, local_rank: int) -> str:
        return os.path.join(self.sockets, f"{local_rank}.sock")

    def _rest(self, now: float, *, late: float) -> None:
        """Nobody could work while we did not: all clocks start again."""
        self.history = decide.remember(now, self._scene(now), None, self.history, late=late)
        for rank in self.ranks:
            rank.rest(now, late=late)
        self.progress_at = now

    def _hear(self, now: float) -> None:
        by_pid = {rank.pid: rank for rank in self.ranks}
        for pid, death in self.deaths.deaths():
            rank = by_pid.get(pid)
            if rank is not None and rank.death != death:
                rank.death = death
                self.teller.rank(self.attempt, rank, "exited", code=death.code)
        for rank in self.ranks:
            rank.hear(now)
        if now - self.felt_at >= FEEL_EVERY:
            self._feel(now)
        steps = max((rank.steps for rank in self.ranks), default=0)
        if steps > self.most_steps:
            if self.most_steps:
                self.longest_pause = max(self.longest_pause, now - self.progress_at)
            self._progress(steps, now)

    def _feel(self, now: float) -> None:
        living = [rank for rank in self.ranks if rank.death is None]
        found = activity.read_many([rank.pid for rank in living])
        for rank in living:
            rank.feel(now, found[rank.pid])
        self.felt_at = now

    def _progress(self, steps: int, now: float) -> None:
        held_up = self.said is not None and self.said[0] != SLOW
        if held_up:
            self.screen.say(f"going on: step {steps}")
            self.said = None
        if held_up or not self.most_steps or now >= self.noted_at + NOTE_EVERY:
            self.journal.write("progress", attempt=self.attempt, steps=steps)
            self.noted_at = now
        self.most_steps, self.progress_at = steps, now
        if not self._transport_told:
            self._transport_told = True
            self.teller.transport(self.attempt, self.ranks, self.paths)

    def _scene(self, now: float) -> Scene:
        return Scene(
            now=now,
            attempt=self.attempt,
            started_at=self.started_at,
            ranks=tuple(rank.view() for rank in self.ranks),
            longest_pause=self.longest_pause,
            oom_kills=self._memory_kills(),
            kernel_events=(),
            told_to_stop=self._told,
            evidence_at=self.evidence_at,
            evidence_wall=self.evidence_wall,
            failures=self.failures,
        )

    def _memory_kills(self) -> int:
        """Counted only when somebody was killed: reading a cgroup ten times a second is waste."""
        killed = any(r.death and r.death.code == -signal.SIGKILL for r in self.ranks)
        now = self.memory_kills() if killed else None
        if now is None or self.kills_before is None:
            return -1
        return now - self.kills_before

    # --- judging -------------------------------------------------------------------------------

    def _judge(self, scene: Scene) -> Step:
        if any(_failed(view) or _raised(view) for view in scene.ranks):
            return self._after_an_end(scene)
        self.settle_until = 0.0
        if self.overrun or limit_exceeded.exceeded(scene):
            return self._keep_limits(scene)
        if habit.stalled(scene, clocks_since=self.history.clocks_since) or self._is_slow(scene):
            return self._with_evidence(scene)
        self.held_up_since = 0.0
        return Step.GO_ON

    def _is_slow(self, scene: Scene) -> bool:
        usual = habit.usual_step(scene)
        if usual and habit.steps(scene) >= habit.STEPS_TO_KNOW:
            self.best_step = min(self.best_step or usual, usual)
        return habit.slowed(scene, self.best_step)

    def _after_an_end(self, scene: Scene) -> Step:
        """Evidence first, then a moment for the others' last words, then the verdict."""
        if not self.settle_until:
            self._take_evidence()
            self.settle_until = scene.now + UNWIND
        if any(_failed(view) for view in scene.ranks):
            self.settle_until = min(self.settle_until, scene.now + SETTLE)
        everybody_gone = all(view.death for view in scene.ranks)
        if time.monotonic() < self.settle_until and not everybody_gone:
            return Step.HOLD
        return self._decide(self._scene(time.monotonic()))

    def _keep_limits(self, scene: Scene) -> Step:
        """A section's time is over: evidence, the sentence, then the signal its author asked for.

        What we say of it is settled here: once the rank is gone, its victims' last words and
        its own abort would tell another story.
        """
        if self.overrun:
            waited = scene.now - self.aborted_at
            return Step.HOLD if waited < overrun.PATIENCE else self._decide(scene)
        self._take_evidence()
        for rank in self.ranks:
            rank.hear(time.monotonic())
        scene = self._scene(time.monotonic())
        over = limit_exceeded.exceeded(scene)
        found = verdict.judge(scene, clocks_since=self.history.clocks_since)
        if not over or not found:  # it ended while we looked
            return Step.GO_ON
        self._announce(found, scene, action="")
        ranks = [view.rank for view in over]
        self.journal.write("signal", attempt=self.attempt, signal="SIGABRT", ranks=ranks)
        self.screen.say(f"SIGABRT to {scene_words.plain(ranks)}, as the limit asks")
        overrun.abort(view.pid for view in over)
        self.overrun, self.aborted_at = found, time.monotonic()
        return Step.HOLD

    def _with_evidence(self, scene: Scene) -> Step:
        self.held_up_since = self.held_up_since or scene.now
        # It may go on for days, as a job without an optimizer does: looks grow rarer.
        pause = min(max(LOOK_AGAIN, (scene.now - self.held_up_since) / 10), LOOK_AT_LEAST)
        if scene.now - self.evidence_at >= pause:
            self._take_evidence()
            scene = self._scene(time.monotonic())
        return self._decide(scene)

    def _decide(self, scene: Scene) -> Step:
        clocks = self.history.clocks_since
        found = self.overrun or verdict.judge(scene, clocks_since=clocks)
        self.history = decide.remember(scene.now, scene, found, self.history)
        decision = decide.decide(scene.now, scene, found, self.policy, self.history)
        if decision.action == "hold":
            return Step.HOLD
        if decision.action != "go-on" and self._is_out_of_date(found, scene):
            # Positions seen a while ago: a job that takes no steps may have moved on since.
            self._take_evidence()
            return self._decide(self._scene(time.monotonic()))
        if decision.action == "go-on":
            if found and (found.slug, found.ranks) != self.said:
                self.said = (found.slug, found.ranks)
                self._announce(found, scene, action="")
            return Step.GO_ON
        return self._act(decision, found, scene)

    def _is_out_of_date(self, found: Verdict | None, scene: Scene) -> bool:
        if found is None or found.certain or endings.endings(scene):
            return False
        return time.monotonic() - self.evidence_at >= LOOK_AGAIN

    def _act(self, decision: decide.Decision, found: Verdict | None, scene: Scene) -> Step:
        restart = decision.action == "restart"
        # The root cause comes last: it is what remains on the terminal.
        if decision.verdict and decision.verdict != found:
            self._announce(decision.verdict, scene, action=decision.reason)
        if found:
            self._culprits = frozenset(found.ranks)
            self._announce(found, scene, action=decision.reason)
        self._code = exit_code_of(found, scene)
        self.failures = (*self.failures, decide.failure_of(scene, found))
        self.journal.write(
            "action",
            action=decision.action,
            attempt=self.attempt,
            steps=self.most_steps,
            idle=round(scene.now - self.progress_at, 3),
            reason=decision.reason,
        )
        self.restarts += restart
        return Step.RESTART if restart else Step.STOP

    def _announce(self, found: Verdict, scene: Scene, *, action: str) -> None:
        self.teller.judgement(
            found,
            scene,
            action=action,
            steps=self.most_steps,
            evidence=self.evidence_folder,
        )
        # What was told about is kept; a look in which nothing was seen is not worth the disk.
        self.evidence_number += 1

    def _take_evidence(self) -> None:
        self.evidence_wall = time.time()
        self.evidence_folder = evidence.take(
            self.ranks, self.paths, attempt=self.attempt, number=self.evidence_number
        )
        self.evidence_at = time.monotonic()
        # Our own questions moved the ranks' counters: that is no sign of life.
        found = activity.read_many([rank.pid for rank in self.ranks if rank.death is None])
        for rank in self.ranks:
            rank.activity = found.get(rank.pid) or rank.activity
        self.journal.write("evidence", attempt=self.attempt, folder=self.evidence_folder)


def _failed(view: RankView) -> bool:
    return view.death is not None and view.death.code != 0


def _raised(view: RankView) -> bool:
    """It is about to end: the interpreter takes seconds to come apart where torch is loaded."""
    return view.death is None and view.words is not None


def exit_code_of(found: Verdict | None, scene: Scene) -> int:
    """The culprit's own code, 128 + the signal that killed it, or 124 for one that we ended."""
    guilty = found.ranks if found else ()
    dead = [view for view in scene.ranks if view.death and view.death.code]
    for view in [v for v in dead if v.rank in guilty] or ([] if guilty else dead):
        assert view.death
        return view.death.code if view.death.code > 0 else 128 - view.death.code
    return STOPPED_BY_VERDICT
