"""Observes a job: its ranks, their exits, heartbeats, counters and evidence, made into a Scene.

It touches the world and judges nothing; what a Scene means is watch.py's business.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from mmap import mmap

from holdfast.analysis.job import cpu_starvation, gpu_stall, pace
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.cpu import Processor
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.analysis.scene.scene import Death, Failure, Scene
from holdfast.rank import delivery, heartbeat_page
from holdfast.rank.events import HOPELESS
from holdfast.run.launch import scheduler
from holdfast.run.launch.places import RunPlaces
from holdfast.run.runs import leftovers
from holdfast.run.watch import evidence, spawned_ranks
from holdfast.run.watch.rank_events import EventListener
from holdfast.run.watch.rank_state import ObservedRank
from holdfast.run.watch.resume_tracker import TrackedEvent
from holdfast.system import activity, gpus
from holdfast.system.cpu import Looker
from holdfast.system.deaths import DeathWatch
from holdfast.system.kernel_log import KernelLog

PAUSES = 32
"""between two steps that are remembered: enough to know a job's rollouts and evaluations"""
COUNTERS_EVERY = 1.0
"""seconds between two looks at the kernel's counters"""

MemoryKills = Callable[[], "int | None"]
"""how many processes of our cgroup the kernel has killed for memory so far; None when unknown"""


class Observer:
    """One job, all its attempts. Only the launcher's one thread touches it."""

    def __init__(self, *, places: RunPlaces, memory_kills: MemoryKills) -> None:
        self.places, self.memory_kills = places, memory_kills
        self.host = socket.gethostname()
        self.deaths = DeathWatch()
        self.kernel_log = KernelLog()
        self.looker = Looker()
        self.events = EventListener()
        self.attempt = 0
        self.ranks: list[ObservedRank] = []
        self.pages: dict[int, tuple[int, mmap]] = {}
        self.longest_pause = 0.0
        self.group_timeout = 0.0
        """the shortest of the ranks' default groups when last seen; 0 when unknown"""
        self.pauses: deque[float] = deque(maxlen=PAUSES)
        self.kept: list[str] = []
        """evidence folders that sentences rest on, the oldest first"""
        self._begin(0.0)

    def _begin(self, now: float) -> None:
        """All that belongs to one attempt."""
        self.started_at = self.counted_at = self.progress_at = now
        self.steps = self.steps_of_all = 0
        self.kernel_log.forget()
        self.kernel_events: tuple[str, ...] | Unread = ()
        self.kills_before = self.memory_kills()
        self.evidence_at = self.evidence_wall = 0.0
        self.processor: Processor | Unread | None = None
        self.gpus: tuple[GpuLook, ...] | Unread | None = None
        self.evidence_number = 0
        self.evidence_folder = ""

    # --- ranks come and go ---------------------------------------------------------------------

    def rank_environment(self, local_rank: int, environment: dict[str, str]) -> dict[str, str]:
        """The environment of a rank about to start: its page, its socket, its last words."""
        self.pages[local_rank] = heartbeat_page.create()
        attempt = int(environment.get("TORCHELASTIC_RESTART_COUNT", self.attempt))
        local, paths = self.places.local, self.places.paths
        mark = {leftovers.RUN: paths.folder} if paths else {}
        self.events.read_all()
        if saves := self.events.account.saves:
            mark[delivery.SAVED] = saves[-1].path
        os.makedirs(local.paths.rank(attempt, local_rank), exist_ok=True)
        return delivery.environment(
            # torch hands us only what it adds; HOLDFAST=off and PYTHONPATH are the user's own.
            {**os.environ, **environment, **mark},
            page=f"/proc/{os.getpid()}/fd/{self.pages[local_rank][0]}",
            words=local.paths.last_words(attempt, local_rank),
            socket=local.socket(local_rank),
            launcher_pid=os.getpid(),
            events=local.paths.events(attempt, local_rank),
        )

    def no_save_is_possible(self, attempt: int) -> None:
        """For ranks that would wait for a step to save at: after a verdict none comes."""
        for local_rank in self.pages:
            path = self.places.local.paths.events(attempt, local_rank) + HOPELESS
            with contextlib.suppress(OSError), open(path, "x"):
                pass

    def ranks_started(self, attempt: int, pids: Mapping[int, int], now: float) -> None:
        local, writer = self.places.local, self.places.writer
        here = local.paths
        files = {local_rank: here.events(attempt, local_rank) for local_rank in pids}
        self.events.begin(attempt, files, steps=self.steps)
        if attempt > self.attempt and writer is not None:
            writer.copy_now(done=here.attempt(self.attempt))
        self.attempt = attempt
        self._begin(now)
        self.ranks = [
            ObservedRank(
                rank=local_rank,  # one machine: the local rank is the rank
                local_rank=local_rank,
                pid=pid,
                host=self.host,
                page=self.pages[local_rank][1],
                words_file=here.last_words(attempt, local_rank),
                stderr_file=self.places.tails.file(local_rank),
                stderr_tail=partial(self.places.tails.of, local_rank),
                socket=local.socket(local_rank),
                started_at=now,
            )
            for local_rank, pid in sorted(pids.items())
        ]
        for rank in self.ranks:
            self.deaths.watch(rank.leader)

    def ranks_stopped(self) -> None:
        for rank in self.ranks:
            spawned_ranks.release(rank)
        for descriptor, page in self.pages.values():
            page.close()
            os.close(descriptor)
        self.pages = {}
        self.ranks = []

    def close(self) -> None:
        """What ranks reported last is read before: the last save is often made at the very end."""
        self.events.read_all()
        self.deaths.close()
        self.kernel_log.close()

    # --- looking -------------------------------------------------------------------------------

    def look(self, now: float) -> list[ObservedRank]:
        """Read what the ranks and the kernel say; returns the ranks that have exited since."""
        by_pid = {rank.leader: rank for rank in self.ranks}
        died = []
        for pid, death in self.deaths.deaths():
            rank = by_pid.get(pid)
            if rank is not None and rank.death != death:
                rank.death = death
                died.append(rank)
        self.read_pages(now)
        self.events.read(now, at_once=bool(died))
        return died

    def all_deaths(self) -> dict[int, Death]:
        """How the ranks of this attempt ended, those included that we have ended."""
        died = dict(self.deaths.deaths())
        return {rank.rank: died[rank.leader] for rank in self.ranks if rank.leader in died}

    def a_rank_died(self) -> bool:
        """Since the last look."""
        known = {rank.leader: rank.death for rank in self.ranks}
        return any(known.get(pid, death) != death for pid, death in self.deaths.deaths())

    def read_pages(self, now: float) -> None:
        for rank in self.ranks:
            rank.read_page(now)
            spawned_ranks.look(rank, now)

    def watched(self) -> list[ObservedRank]:
        """The ranks of the job: a script may have started its own."""
        return spawned_ranks.standing_in(self.ranks)

    def launched(self, ranks: Iterable[int]) -> frozenset[int]:
        """Those of the watched ranks that the launcher started itself, and can end."""
        started = self.watched() == self.ranks
        return frozenset(ranks) if started else frozenset()

    def read_counters(self, now: float) -> None:
        """The kernel's, once a second."""
        if now - self.counted_at < COUNTERS_EVERY:
            return
        self.counted_at = now
        living = [rank for rank in self.watched() if rank.death is None]
        found = activity.read_many([rank.pid for rank in living])
        for rank in living:
            rank.compare(now, found[rank.pid])
            rank.remember_threads()

    def new_steps(self, now: float) -> int:
        """How many steps the furthest rank has taken, if any rank took one since the last look;
        else 0."""
        watched = self.watched()
        steps = max((rank.steps for rank in watched), default=0)
        of_all = sum(rank.steps for rank in watched)
        if of_all <= self.steps_of_all:
            return 0
        self.steps_of_all = of_all
        timeouts = [r.beat.group_timeout for r in self.ranks if r.beat and r.beat.group_timeout]
        self.group_timeout = min(timeouts, default=self.group_timeout)
        if self.steps:
            self.longest_pause = max(self.longest_pause, self.idle(now))
            if self.idle(now) >= pace.SHORTEST:
                self.pauses.append(self.idle(now))
        self.steps, self.progress_at = steps, now
        return steps

    def idle(self, now: float) -> float:
        """Seconds since the last step, or since the start of the attempt."""
        return now - self.progress_at

    def evidence_age(self, now: float) -> float:
        return now - self.evidence_at

    def new_events(self) -> list[TrackedEvent]:
        """What ranks have reported of checkpoints since this was last asked."""
        return self.events.news()

    def reset_timers(self, now: float, *, late: float) -> None:
        """The machine slept: all timers start again."""
        watched = self.watched()
        for rank in (*self.ranks, *(rank for rank in watched if rank not in self.ranks)):
            rank.reset_timers(now, late=late)
        self.progress_at = now

    def take_evidence(self) -> None:
        self.evidence_wall = time.time()
        self.evidence_at = time.monotonic()  # also where something below fails: not at every look
        self.ask_kernel()
        watched = self.watched()
        self.evidence_folder = evidence.take(
            watched,
            self.places.paths,
            writer=self.places.writer,
            attempt=self.attempt,
            number=self.evidence_number,
            kernel=self.kernel_events,
        )
        self.evidence_at = time.monotonic()
        # Our own questions moved the ranks' counters: that is no sign of life.
        found = activity.read_many([rank.pid for rank in watched if rank.death is None])
        for rank in watched:
            rank.activity = found.get(rank.pid) or rank.activity
        seen = self.scene(self.evidence_at)
        if cpu_starvation.suspected(seen):
            self.processor = self.looker.try_to_look(found)
        if not isinstance(self.gpus, Unread):  # a driver that hangs is asked once
            self.gpus = gpus.look() if gpu_stall.suspected(seen) else None

    def ask_kernel(self) -> None:
        """Only when a rank died or a stall is looked at."""
        ranks = self.watched()
        owners = {number: rank.pid for rank in ranks for number in (rank.pid, *rank.threads)}
        self.kernel_events = self.kernel_log.about(owners)

    def keep_evidence(self) -> None:
        """What was reported is kept; a look in which nothing was seen is not worth the disk."""
        self.evidence_number += 1
        folder, writer = self.evidence_folder, self.places.writer
        if writer is not None and folder and folder not in self.kept:
            self.kept.append(folder)
            if len(self.kept) > evidence.KEEP_FIRST + evidence.KEEP_NEWEST:
                writer.remove(self.kept.pop(evidence.KEEP_FIRST))

    # --- the scene -----------------------------------------------------------------------------

    def scene(
        self,
        now: float,
        *,
        told_to_stop: str = "",
        failures: tuple[Failure, ...] = (),
        best_step: float = 0.0,
    ) -> Scene:
        return Scene(
            now=now,
            attempt=self.attempt,
            started_at=self.started_at,
            ranks=tuple(rank.view() for rank in self.watched()),
            longest_pause=self.longest_pause,
            pauses=tuple(self.pauses),
            oom_kills=self._memory_kills(),
            kernel_events=self.kernel_events,
            told_to_stop=told_to_stop,
            evidence_at=self.evidence_at,
            evidence_wall=self.evidence_wall,
            failures=failures,
            best_step=best_step,
            checkpoints=self.events.account,
            processor=self.processor,
            gpus=self.gpus,
            scheduler=scheduler.read(os.environ, wall=time.time()) if told_to_stop else None,
        )

    def _memory_kills(self) -> int:
        """Counted only when a rank was killed: reading a cgroup ten times a second is waste."""
        killed = any(r.death and r.death.code == -signal.SIGKILL for r in self.ranks)
        now = self.memory_kills() if killed else None
        if now is None or self.kills_before is None:
            return -1
        return now - self.kills_before
