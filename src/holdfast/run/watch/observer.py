"""Observes the ranks of this node: exits, heartbeats, counters and evidence, made into a report.

It touches the world and judges nothing; what the reports of all nodes mean is watch.py's business.
"""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from mmap import mmap
from typing import Any

from holdfast.analysis.job import cpu_starvation
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.cpu import Processor
from holdfast.analysis.scene.gpu import GpuEvent, GpuLook
from holdfast.analysis.scene.node_view import RankConnection
from holdfast.analysis.scene.rdma import PortChange
from holdfast.analysis.scene.scene import Death
from holdfast.rank import delivery, heartbeat_page
from holdfast.rank.events import HOPELESS
from holdfast.run.launch.places import RunPlaces
from holdfast.run.nodes.messages import NodeReport, RoundStart
from holdfast.run.runs import leftovers
from holdfast.run.watch import assembler, evidence, spawned_ranks
from holdfast.run.watch.gpu_watch import GpuWatch
from holdfast.run.watch.rank_connections import RankConnections
from holdfast.run.watch.rank_events import EventListener
from holdfast.run.watch.rank_state import ObservedRank
from holdfast.run.watch.ras_witness import RasWitness
from holdfast.run.watch.rdma_watch import RdmaWatch
from holdfast.run.watch.resume_tracker import TrackedEvent
from holdfast.system import activity
from holdfast.system.cpu import Looker
from holdfast.system.deadline import ask_here
from holdfast.system.deaths import DeathWatch
from holdfast.system.kernel_log import KernelLog

RAS_WAIT = 1.0
"""seconds for the answer of NCCL's RAS, once all other evidence is here: it takes milliseconds, and
longer only where the kernel gives the question to a stopped rank first"""
COUNTERS_EVERY = 1.0
"""seconds between two looks at the kernel's counters"""

MemoryKills = Callable[[], "int | None"]
"""how many processes of our cgroup the kernel has killed for memory so far; None when unknown"""


class Observer:
    """One node of a job, all its attempts. Only the launcher's one thread touches it."""

    def __init__(self, *, places: RunPlaces, memory_kills: MemoryKills) -> None:
        self.places, self.memory_kills = places, memory_kills
        self.host = socket.gethostname()
        self.deaths = DeathWatch()
        self.kernel_log = KernelLog()
        self.looker = Looker()
        self.events = EventListener(places.rules.rules)
        self.gpu_driver = GpuWatch()
        self.ras = RasWitness()
        self.rdma_cards = RdmaWatch()
        self.attempt = 0
        self.ranks: list[ObservedRank] = []
        self.pages: dict[int, tuple[int, mmap]] = {}
        self.numbers: dict[int, int] = {}
        """local rank -> rank"""
        self.saved = ""
        """the newest checkpoint of the job, for ranks about to start"""
        self.round = 0
        self.other_nodes: dict[str, str] = {}
        """address -> the other node of the round that has it"""
        self.links = RankConnections()
        self.kept: list[str] = []
        """evidence folders that sentences rest on, the oldest first"""
        self._begin(0.0)

    def _begin(self, now: float) -> None:
        """All that belongs to one attempt."""
        self.started_at = self.counted_at = now
        self.slept_at = 0.0
        """when our own loop was last late; 0 for never"""
        ask_here(self.kernel_log.forget)
        self.kernel_events: tuple[str, ...] | Unread = ()
        self.kills_before = ask_here(self.memory_kills)
        self.evidence_at = self.evidence_wall = 0.0
        self.answered = 0
        """the number of the request for evidence that was answered last"""
        self.connections: tuple[RankConnection, ...] | Unread | None = None
        self.processor: Processor | Unread | None = None
        self.gpus: tuple[GpuLook, ...] | Unread | None = None
        self.gpu_events: tuple[GpuEvent, ...] | Unread = ()
        self.rdma: tuple[PortChange, ...] | Unread | None = None
        self.evidence_number = 0
        self.evidence_folder = ""

    # --- ranks come and go ---------------------------------------------------------------------

    def rank_environment(self, local_rank: int, environment: dict[str, str]) -> dict[str, str]:
        """The environment of a rank about to start: its page, its socket, its last words."""
        self.pages[local_rank] = heartbeat_page.create()
        attempt = int(environment.get("TORCHELASTIC_RESTART_COUNT", self.attempt))
        rank = self.numbers[local_rank] = int(environment.get("RANK", local_rank))
        local, paths = self.places.local, self.places.paths
        mark = {leftovers.RUN: paths.folder} if paths else {}
        self.events.read_all()
        if saved := self.newest_save():
            mark[delivery.SAVED] = saved
        os.makedirs(local.paths.rank(attempt, rank), exist_ok=True)
        return delivery.environment(
            # torch hands us only what it adds; HOLDFAST=off and PYTHONPATH are the user's own.
            {**os.environ, **environment, **mark},
            page=heartbeat_page.path_of(self.pages[local_rank][0]),
            words=local.paths.last_words(attempt, rank),
            socket=local.socket(local_rank),
            launcher_pid=os.getpid(),
            events=local.paths.events(attempt, rank),
        )

    def newest_save(self) -> str:
        """The newest checkpoint that the job has reported; '' when there is none."""
        saves = self.events.account.saves
        return saves[-1].path if saves else self.saved

    def join_round(self, round_: RoundStart, own: str) -> None:
        """The next ranks belong to this round; `own` is what the others call this node."""
        self.round, self.host, self.saved = round_.round, own, round_.saved
        others = [node for node in round_.nodes if node.name != own]
        self.other_nodes = {where: node.name for node in others for where in node.addresses}
        self.links = RankConnections()

    def no_save_is_possible(self, attempt: int) -> None:
        """For ranks that would wait for a step to save at: after a verdict none comes."""
        for local_rank in self.pages:
            rank = self.numbers[local_rank]
            path = self.places.local.paths.events(attempt, rank) + HOPELESS
            with contextlib.suppress(OSError), open(path, "x"):
                pass

    def ranks_started(
        self, attempt: int, pids: Mapping[int, int], now: float, *, steps: int = 0
    ) -> None:
        """`pids` by local rank; the attempt before had taken `steps` steps."""
        local, writer = self.places.local, self.places.writer
        here = local.paths
        numbers = {local_rank: self.numbers.get(local_rank, local_rank) for local_rank in pids}
        files = {rank: here.events(attempt, rank) for rank in numbers.values()}
        self.events.begin(attempt, files, steps=steps)
        self.events.rules.begin(now)
        if attempt > self.attempt and writer is not None:
            writer.copy_now(done=here.attempt(self.attempt))
        self.attempt = attempt
        self._begin(now)
        self.ranks = [
            ObservedRank(
                rank=numbers[local_rank],
                local_rank=local_rank,
                pid=pid,
                host=self.host,
                page=self.pages[local_rank][1],
                words_file=here.last_words(attempt, numbers[local_rank]),
                stderr_file=self.places.tails.file(numbers[local_rank]),
                stderr_tail=partial(self.places.tails.of, numbers[local_rank]),
                socket=local.socket(local_rank),
                started_at=now,
            )
            for local_rank, pid in sorted(pids.items())
        ]
        for rank in self.ranks:
            self.deaths.watch(rank.leader)
        for reader in (self.gpu_driver, self.rdma_cards, self.ras):
            ask_here(reader.begin)

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
        self.events.finish()
        self.places.rules.close()
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
        """Those of the watched ranks that this launcher started itself, and can end: their local
        ranks."""
        if self.watched() != self.ranks:
            return frozenset()
        wanted = frozenset(ranks)
        return frozenset(rank.local_rank for rank in self.ranks if rank.rank in wanted)

    def ranks_of(self, local_ranks: Iterable[int]) -> list[int]:
        return [self.numbers.get(local_rank, local_rank) for local_rank in local_ranks]

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
        if self.other_nodes:
            pids = {rank.rank: rank.pid for rank in living}
            self.connections = self.links.look(pids, self.other_nodes, now)

    def evidence_age(self, now: float) -> float:
        return now - self.evidence_at

    def read_rules(self, now: float) -> Sequence[str]:
        """Lines of the ranks here that the user's own rules matched become their events; sentences
        about rules that could not be looked at."""
        news = self.places.rules.look()
        for rank, event in news.events:
            self.events.add(rank, event)
        if news.gap:
            self.events.rules.restart_timers(now)
        return news.remarks

    def new_events(self) -> list[TrackedEvent]:
        """What ranks have reported of checkpoints since this was last asked."""
        return self.events.news()

    def add_event(self, rank: int, event: dict[str, Any]) -> None:
        """Of a rank on another node."""
        self.events.add(rank, event)

    def reset_timers(self, now: float, *, late: float) -> None:
        """The machine slept: all timers start again."""
        watched = self.watched()
        for rank in (*self.ranks, *(rank for rank in watched if rank not in self.ranks)):
            rank.reset_timers(now, late=late)
        self.events.rules.restart_timers(now)
        self.slept_at = now

    def take_evidence(self, number: int = 0, *, ask_ras: bool = False) -> None:
        """`number`: of the coordinator's request for it. `ask_ras`: only for a job that is about to
        be ended, since the question has crashed ranks that were making a communicator (NVIDIA/nccl
        issues 1669, 2346); the RAS of one node speaks for the whole job."""
        self.evidence_wall = time.time()
        self.evidence_at = time.monotonic()  # also where something below fails: not at every look
        watched = self.watched()
        if ask_ras:
            self.ras.ask(rank.pid for rank in watched)
        self.ask_kernel()
        self.gpus = ask_here(self.gpu_driver.look)
        self.rdma = ask_here(self.rdma_cards.look)
        self.evidence_folder = evidence.take(
            watched,
            self.places.paths,
            writer=self.places.writer,
            attempt=self.attempt,
            number=self.evidence_number,
            kernel=self._kernel_lines(),
            gpus=self.gpus,
            ras=lambda: self.ras.wait(RAS_WAIT),
        )
        self.evidence_at = time.monotonic()
        # Our own questions moved the ranks' counters: that is no sign of life.
        found = activity.read_many([rank.pid for rank in watched if rank.death is None])
        for rank in watched:
            rank.look_again(self.evidence_at, found.get(rank.pid))
        self.answered = number
        seen = assembler.scene_of_node(self.report(self.evidence_at), self.attempt, self.started_at)
        if cpu_starvation.suspected(seen):
            self.processor = self.looker.try_to_look(found)

    def ask_kernel(self) -> None:
        """Only when a rank died or a stall is looked at."""
        ranks = self.watched()
        owners = {number: rank.pid for rank in ranks for number in (rank.pid, *rank.threads)}
        self.kernel_events = self.kernel_log.about(owners)
        self.gpu_events = self.kernel_log.of_gpus()

    def _kernel_lines(self) -> tuple[str, ...] | Unread:
        """Of ranks and of GPUs; one line may be about both."""
        if isinstance(self.gpu_events, Unread):
            return self.gpu_events
        about_gpus = tuple(event.line for event in self.gpu_events)
        if isinstance(self.kernel_events, Unread):
            return about_gpus or self.kernel_events
        return tuple(dict.fromkeys((*self.kernel_events, *about_gpus)))

    def keep_evidence(self) -> None:
        """What was reported is kept; a look in which nothing was seen is not worth the disk."""
        self.evidence_number += 1
        folder, writer = self.evidence_folder, self.places.writer
        if writer is not None and folder and folder not in self.kept:
            self.kept.append(folder)
            if len(self.kept) > evidence.KEEP_FIRST + evidence.KEEP_NEWEST:
                writer.remove(self.kept.pop(evidence.KEEP_FIRST))

    # --- the report ----------------------------------------------------------------------------

    def report(self, now: float) -> NodeReport:
        """All that this node sees of its ranks."""
        return NodeReport(
            round=self.round,
            at=now,
            ranks=tuple(rank.view() for rank in self.watched()),
            oom_kills=self._memory_kills(),
            evidence=self.answered,
            evidence_at=self.evidence_at,
            evidence_wall=self.evidence_wall,
            kernel_events=self.kernel_events,
            processor=self.processor,
            gpus=self.gpus,
            gpu_events=self.gpu_events,
            rdma=self.rdma,
            connections=self.connections,
            slept_at=self.slept_at,
        )

    def _memory_kills(self) -> int:
        """Counted only when a rank was killed: reading a cgroup ten times a second is waste."""
        killed = any(r.death and r.death.code == -signal.SIGKILL for r in self.ranks)
        now = ask_here(self.memory_kills) if killed else None
        if isinstance(now, int) and isinstance(self.kills_before, int):
            return now - self.kills_before
        return -1
