"""What a simulated job leaves: dumps as torch writes them, its watchdogs' lines, and the scene that
`holdfast run` would see. Pure.

With the traps of the real ones: clocks that differ, short rings, groups whose members no dump lists
(Gloo), parts of a split group under one name, entries that are over and not yet put away, messages
posted as one, states that never change, dumps that were lost.
"""

from __future__ import annotations

import json
import pickle
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from holdfast.analysis.collectives import recorder
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Activity, Beat, Death, Frame, RankView, Scene, Stack
from tools.simulated_job import Issue, Job, Player

WALL = 1_790_000_000.0
NOW = 100_000.0
HUNG = 600.0
"""seconds since the last collective"""
UNSEEN = Unread(why="it did not answer")
TORCH = "/venv/lib/python3.12/site-packages/torch"
_OPS = {
    "all_reduce": "ALLREDUCE",
    "_all_gather_base": "_ALLGATHER_BASE",
    "_reduce_scatter_base": "_REDUCE_SCATTER_BASE",
    "all_to_all": "ALLTOALL_BASE",
    "barrier": "ALLREDUCE",
    "send": "SEND",
    "recv": "RECV",
}


@dataclass(frozen=True)
class Traps:
    """What makes the remains of one job hard to read."""

    ring: int
    """entries that a recorder keeps"""
    timed: bool
    """TORCH_NCCL_ENABLE_TIMING: it is known which ones the GPU has come to"""
    shared_names: bool
    """older torch: all parts of a split group have one name"""
    lost: frozenset[int]
    """ranks whose dumps were not kept, besides those that wrote none"""
    late_notes: frozenset[int]
    """ranks whose last finished collective is not put away yet"""
    first_number: int
    skew: tuple[float, ...]
    """seconds by which the clocks of nodes differ"""
    stacks: bool
    """`run` could take stacks"""
    torn: frozenset[int] = frozenset()
    """ranks that lost a connection to a killed one: NCCL's abort ended what they were in, and they
    went no further"""

    def of_run(self) -> Traps:
        """`run` sets TORCH_NCCL_ENABLE_TIMING."""
        return replace(self, timed=True)


def random_traps(random: Random, job: Job) -> Traps:
    ranks = range(job.mesh.size)
    lost = random.random() < 0.3
    share = random.choice((0.02, 0.1, 0.3))
    return Traps(
        ring=random.choice((100, 2000, 2000)),
        timed=job.backend == "nccl" and random.random() < 0.3,
        shared_names=job.backend == "nccl" and random.random() < 0.2,
        lost=frozenset(r for r in ranks if lost and random.random() < share),
        late_notes=frozenset(random.sample(ranks, random.choice((0, 0, 1)))),
        first_number=random.choice((0, 0, 17, 12_345)),
        skew=tuple(random.uniform(-2, 2) for _ in range(1 + job.mesh.size // 8)),
        stacks=random.random() < 0.7,
    )


def torn_out(random: Random, job: Job) -> frozenset[int]:
    """Most of those that were in a collective or a message with a killed rank: sockets tell, shared
    memory and RDMA do not. Empty where no rank was killed, or none of NCCL's noticed."""
    if job.backend != "nccl":
        return frozenset()
    killed = {p.rank for p in job.players if p.halted and p.did and p.did.kind == "killed"}
    near = [
        p.rank
        for p in job.players
        if not _is_gone(p)
        and any(i.started and killed & set(m.ranks) for i in p.undone for m in i.meetings)
    ]
    return frozenset(rank for rank in near if random.random() < 0.8)


class Remains:
    def __init__(self, job: Job, traps: Traps) -> None:
        self.job, self.traps = job, traps
        self.axes = {name: axis for (axis, _), (name, _) in job.groups.items()}

    # --- recorders -----------------------------------------------------------------------------

    @property
    def dumping(self) -> list[int]:
        """A process that is stopped or gone writes nothing."""
        return [
            p.rank for p in self.job.players if not _is_gone(p) and p.rank not in self.traps.lost
        ]

    def entries(self, me: Player) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = []
        kept = [i for i in me.issued if self.job.backend == "nccl" or not i.op.messages]
        if me.rank in self.traps.torn:
            kept = [replace(issue, done=True) if issue.started else issue for issue in kept]
        over = [issue for issue in kept if issue.done]
        noted_late = over[-1] if over and me.rank in self.traps.late_notes else None
        if kept and noted_late is kept[-1]:
            noted_late = None  # after minutes its watchdog has looked
        counts: dict[str, int] = {}
        for issue in kept:
            if not issue.op.messages:
                counts[issue.group] = issue.sequence
            found += self._written(me, issue, counts, late=issue is noted_late)
        return found[-self.traps.ring :]

    def _written(
        self, me: Player, issue: Issue, counts: dict[str, int], *, late: bool
    ) -> list[dict[str, Any]]:
        nccl, first = self.job.backend == "nccl", self.traps.first_number
        state = "scheduled"
        if nccl and issue.done:
            state = "completed"
        elif nccl and self.traps.timed and issue.started:
            state = "started"
        retired = issue.done and not late
        at = WALL + issue.order * 1e-4 + self.traps.skew[me.rank // 8]
        is_message = bool(issue.op.messages)
        entry: dict[str, Any] = {
            "record_id": issue.order,
            "pg_id": int(issue.group),
            "process_group": (self.name(issue.group), self.axes[issue.group]),
            "collective_seq_id": counts.get(issue.group, 0) + first,
            "p2p_seq_id": issue.sequence + first if is_message else 0,
            "op_id": issue.order,
            "profiling_name": f"{self.job.backend}:{issue.op.op}",
            "time_created_ns": int(at * 1e9),
            "input_sizes": [[issue.size]],
            "input_dtypes": ["Float"],
            "output_sizes": [[issue.size]],
            "output_dtypes": ["Float"],
            "state": state,
            "retired": retired,
            "timeout_ms": int(HUNG * 1000),
            "is_p2p": is_message,
            "time_discovered_started_ns": int(at * 1e9) + 1000
            if self.traps.timed and issue.started
            else None,
            "time_discovered_completed_ns": int(at * 1e9) + 50_000 if issue.done else None,
            "frames": [],
        }
        if not is_message:
            return [entry]
        names = [self._message_name(me.rank, issue.group, *one) for one in issue.op.messages]
        if len(names) == 1:
            return [{**entry, "profiling_name": f"nccl:{names[0]}"}]
        parts = [
            {**entry, "profiling_name": f"nccl:{name}", "state": "scheduled", "retired": False,
             "time_discovered_started_ns": None, "time_discovered_completed_ns": None}
            for name in names
        ]  # fmt: skip
        return [*parts, {**entry, "profiling_name": "nccl:coalesced", "is_p2p": False}]

    def _message_name(self, rank: int, group: str, way: str, away: int) -> str:
        own = self.job.members[group].index(rank)
        return f"{way} {own}{'->' if way == 'send' else '<-'}{own + away}"

    def name(self, group: str) -> str:
        if group == "0" or not self.traps.shared_names:
            return group
        return str(1 + ("world", "tp", "dp", "ep", "pp").index(self.axes[group]))

    def document(self, rank: int) -> dict[str, Any]:
        own = {name: ranks for name, ranks in self.job.members.items() if rank in ranks}
        config = {"": {"name": "", "desc": "", "ranks": ""}}  # of Gloo
        if self.job.backend == "nccl":
            config = {
                self.name(name): {
                    "name": self.name(name), "desc": self.axes[name], "ranks": str(list(ranks)),
                }
                for name, ranks in own.items()
            }  # fmt: skip
        return {
            "version": "2.10",
            "comm_lib_version": "2.28.9",
            "pg_config": config,
            "pg_status": {},
            "entries": self.entries(self.job.players[rank]),
        }

    def dumps(self) -> dict[str, bytes]:
        return {
            f"nccl_trace_rank_{rank}": pickle.dumps(self.document(rank), protocol=2)
            for rank in self.dumping
        }

    # --- what torch's watchdogs print ----------------------------------------------------------

    def log(self) -> bytes:
        """Of NCCL ranks: those that wait report a timeout, the others that they were told of it."""
        lines = [f"[rank{p.rank}]: step 4" for p in self.job.players if self.traps.torn]
        for me in self.job.players:
            if _is_gone(me):
                continue
            open_ones = [issue for issue in me.undone if issue.started]
            if me.rank in self.traps.torn:
                lines += [*self._lost_a_peer(me, open_ones[0]), *self._was_told(me)]
            elif open_ones:
                lines += self._timed_out(me, open_ones[0])
            else:
                lines += self._was_told(me)
        return "".join(f"{line}\n" for line in lines).encode()

    def _timed_out(self, me: Player, issue: Issue) -> list[str]:
        number = issue.sequence + self.traps.first_number
        prefix = f"[rank{me.rank}]:[E1116 01:03:15.143127245 ProcessGroupNCCL.cpp:"
        op = _OPS.get(issue.op.op, "COALESCED")
        caught = (
            f"{prefix}689] [Rank {me.rank}] Watchdog caught collective operation timeout: "
            f"WorkNCCL(SeqNum={number}, OpType={op}, NumelIn={issue.size}, NumelOut={issue.size}, "
            f"Timeout(ms)={HUNG * 1000:.0f}) ran for {HUNG * 1000 + 12:.0f} milliseconds before "
            "timing out."
        )
        status = (
            f"{prefix}2303] [{self._pg(me, issue.group)}]  failure detected by watchdog at work "
            f"sequence id: {number} PG status: {self._status(me, issue.group)}"
        )
        return [caught, status]

    def _lost_a_peer(self, me: Player, issue: Issue) -> list[str]:
        number, size = issue.sequence + self.traps.first_number, issue.size
        caught = (
            f"[rank{me.rank}]:[E1116 00:53:15.243127245 ProcessGroupNCCL.cpp:612] [Rank {me.rank}] "
            f"Collective WorkNCCL(SeqNum={number}, OpType={_OPS.get(issue.op.op, 'COALESCED')}, "
            f"NumelIn={size}, NumelOut={size}, Timeout(ms)={HUNG * 1000:.0f}) raised the following "
            "async exception: NCCL error: remote process exited or there was a network error, NCCL "
            "version 2.28.9"
        )
        remote = "A call failed possibly due to a network error or a remote process exiting"
        return [
            caught,
            f"[rank{me.rank}]: ncclRemoteError: {remote} prematurely.",
            f"[rank{me.rank}]: socketProgress: Connection closed by remote peer node-2<43748>",
        ]

    def _was_told(self, me: Player) -> list[str]:
        prefix = f"[rank{me.rank}]:[E1116 01:03:16.448308057 ProcessGroupNCCL.cpp:"
        told = (
            f"{prefix}1914] [{self._pg(me, '0')}] Received a dump signal due to a collective "
            "timeout from  rank 3 and we will try our best to dump the debug info. "
            f"{self._status(me, '0').capitalize()}.This is most likely caused by incorrect usages "
            "of collectives, e.g., wrong sizes used across ranks"
        )
        return [told]

    def _pg(self, me: Player, group: str) -> str:
        own = [name for name, ranks in self.job.members.items() if me.rank in ranks]
        return (
            f"PG ID {own.index(group)} PG GUID {self.name(group)}({self.axes[group]}) "
            f"Rank {self.job.members[group].index(me.rank)}"
        )

    def _status(self, me: Player, group: str) -> str:
        own = [i for i in me.issued if i.group == group and not i.op.messages]
        first = self.traps.first_number if own or self.traps.first_number else -1
        over = sum(issue.done for issue in own)
        return f"last enqueued work: {len(own) + first}, last completed work: {over + first}"

    # --- what `run` sees -----------------------------------------------------------------------

    def scene(self) -> Scene:
        return Scene(
            now=NOW,
            attempt=0,
            started_at=NOW - 5000.0,
            ranks=tuple(self._view(player) for player in self.job.players),
            longest_pause=0.5,
            oom_kills=0,
            kernel_events=(),
            told_to_stop="",
            evidence_at=NOW - 0.1,
            evidence_wall=WALL + HUNG,
        )

    def _view(self, me: Player) -> RankView:
        kind = me.did.kind if me.did is not None and me.halted else ""
        gone = kind == "killed"
        unread = kind == "frozen" or me.rank in self.traps.lost
        then = NOW - HUNG
        return RankView(
            rank=me.rank,
            local_rank=me.rank % 8,
            pid=4000 + me.rank,
            host="a",
            beat=Beat(
                torch_imported=True, group_ready=True, steps=100, step_at=then, usual_step=0.05,
                beat_at=NOW - 0.05, phase="", limit_name="", limit_until=0.0, group_timeout=1800.0,
            ),
            activity=None if gone else Activity(
                state="T" if kind == "frozen" else "S", cpu=9.0, io=1, socket=1, faults=0,
                wait_channel="",
            ),
            alive_at=then,
            state_since=then,
            death=Death(code=-9, at=then) if gone else None,
            words=None,
            stack=None if gone else UNSEEN if unread or not self.traps.stacks else self._stack(me),
            recorder=None if gone else UNSEEN if unread else recorder.parse(self.json(me.rank)),
        )  # fmt: skip

    def json(self, rank: int) -> bytes:
        return json.dumps(self.document(rank)).encode()

    def _stack(self, me: Player) -> Stack:
        """A script that waits is in a collective, or in user code that waits for its GPU."""
        own = Frame(function="train", file="/home/me/train.py", line=30)
        if me.halted:
            frames = [Frame(function="load", file="/home/me/data.py", line=88), own]
        elif me.undone and me.must_wait and self.job.backend == "gloo":
            inner = f"{TORCH}/distributed/distributed_c10d.py"
            frames = [Frame(function=me.undone[-1].op.op, file=inner, line=3000), own]
        else:
            frames = [own]
        return Stack(frames=tuple(frames), active=False, holds_gil=False)


def _is_gone(me: Player) -> bool:
    return me.halted and me.did is not None and me.did.kind in ("frozen", "killed")
