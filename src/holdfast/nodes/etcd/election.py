"""Which node coordinates, decided by what is in etcd: pure questions and answers.

Below `/holdfast/RUN_ID/` there are

    coordinator     who coordinates and where it listens; gone 7 s after it was last heard of
    job             the newest round and what has to outlive a coordinator: its token, restarts
                    used, failures. Kept by every node that was in that round; gone 30 s after the
                    last of them
    nodes/IDENTITY  every launcher, and the job it is in; gone 7 s after it was last heard of

Only who was in the newest round takes over a job: the others cannot know whether its ranks live
on behind a broken link to etcd. A job that no node keeps any more may be started again by any; but
not while a node says that it is in one, nor by a launcher to which etcd has just come back: those
that run may not have put theirs back yet.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from holdfast import text
from holdfast.nodes.etcd.client import Absent, StoredValue, Unchanged

LEASE = 7
"""seconds: as long as a launcher runs its ranks without being heard"""
JOB_LEASE = 30
"""seconds: time for an election, with an etcd that elects a leader first"""


class ElectedNode(msgspec.Struct, frozen=True, kw_only=True):
    """Who coordinates, as it says itself."""

    name: str
    identity: str
    job: str
    addresses: tuple[str, ...] = ()
    port: int = 0
    """0 until it listens"""


class KeptJob(msgspec.Struct, frozen=True, kw_only=True):
    id: str
    """made when it was first started: the next job of this run id has another"""
    lease: int
    token: str = ""
    """of its launchers; '' where every node was given one"""
    round: int = 0
    ended: str = ""
    """why there is no other round, for nodes that come back; '' while there may be"""
    carried: dict[str, Any] = {}
    """what the next coordinator has to know; its meaning is the launcher's"""


class RegisteredNode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    job: str = ""
    """whose ranks it has; '' before its first round"""


class ElectionCandidate(NamedTuple):
    """This launcher."""

    name: str
    identity: str
    job: str = ""
    """that it was in; '' before its first"""
    round: int = 0
    """the newest that its ranks were in"""


class ElectionView(NamedTuple):
    """What etcd holds at one moment."""

    coordinator: ElectedNode | None
    job: KeptJob | None
    job_created: int
    nodes: tuple[str, ...]
    at_work: tuple[str, ...] = ()
    """of these, those that are in a job"""


class Follow(NamedTuple):
    coordinator: ElectedNode
    token: str


class StandForElection(NamedTuple):
    only_if: tuple[Absent | Unchanged, ...]
    job: KeptJob | None
    """to take over; None to begin one"""


class Await(NamedTuple):
    why: str


class JobEnded(NamedTuple):
    why: str


Move = Follow | StandForElection | Await | JobEnded


class ElectionKeys(NamedTuple):
    prefix: str
    coordinator: str
    job: str

    def node(self, identity: str) -> str:
        return f"{self.prefix}nodes/{identity}"


def keys_of(run_id: str) -> ElectionKeys:
    prefix = f"/holdfast/{quote(run_id, safe='')}/"
    return ElectionKeys(prefix, f"{prefix}coordinator", f"{prefix}job")


def view_of(found: Mapping[str, StoredValue], keys: ElectionKeys) -> ElectionView:
    """Raises ValueError for what another program or a later holdfast wrote."""
    held, job = found.get(keys.coordinator), found.get(keys.job)
    nodes = [
        msgspec.json.decode(stored.value, type=RegisteredNode)
        for key, stored in sorted(found.items())
        if key.startswith(f"{keys.prefix}nodes/")
    ]
    return ElectionView(
        msgspec.json.decode(held.value, type=ElectedNode) if held else None,
        msgspec.json.decode(job.value, type=KeptJob) if job else None,
        job.created if job else 0,
        tuple(node.name for node in nodes),
        tuple(node.name for node in nodes if node.job),
    )


def next_move(
    view: ElectionView, me: ElectionCandidate, keys: ElectionKeys, *, settled: bool = True
) -> Move:
    """What this launcher does, which knows of no coordinator that it reaches. `settled`: etcd has
    answered for so long that a job that runs is in it."""
    coordinator, job = view.coordinator, view.job
    if me.round and job is not None and job.id == me.job and job.ended:
        return JobEnded(job.ended)
    if me.round and (job is None or job.id != me.job):
        return JobEnded("the job that this node was in has ended, or all its other nodes are lost")
    if coordinator is None or coordinator.identity == me.identity:
        return _without_coordinator(view, me, keys, settled=settled)
    if not (coordinator.port and coordinator.addresses):
        return Await(f"{coordinator.name} was elected to coordinate, and is about to listen")
    if job is None or job.id != coordinator.job:
        return Await(f"{coordinator.name} coordinates an earlier start of this run")
    return Follow(coordinator, job.token)


def _without_coordinator(
    view: ElectionView, me: ElectionCandidate, keys: ElectionKeys, *, settled: bool
) -> Move:
    job = view.job
    if job is None and view.at_work:
        names = text.names(view.at_work)
        are = text.plural(view.at_work, "is", "are")
        return Await(f"{names} {are} in a job of this run that its coordinator has to put back")
    if job is None and not settled:
        return Await(f"etcd has just come back: a job that runs is in it again within {LEASE} s")
    # One that is our own: what we asked for was done, only the answer was lost.
    free = () if view.coordinator else (Absent(keys.coordinator),)
    if job is None or job.ended:
        there = Unchanged(keys.job, view.job_created) if job else Absent(keys.job)
        return StandForElection((*free, there), None)
    if job.round == 0 or me.round >= job.round:
        return StandForElection((*free, Unchanged(keys.job, view.job_created)), job)
    nodes = text.names(view.nodes) if view.nodes else "no node"
    return Await(
        f"etcd does not hear the coordinator of this run, and this node was not in its round "
        f"{job.round}: a node that was takes over if it is lost; {JOB_LEASE} s after the last of "
        f"them, the job starts again (registered with etcd: {nodes})"
    )


def must_step_down(*, overruled: bool, unproven: bool, member_missing: bool) -> bool:
    """Whether a coordinator ends its ranks at once.

    etcd that answers no node stops no job: while all nodes of the round hear each other, none of
    them stands for election. One that is missing may have been elected meanwhile: a node that is
    lost while etcd is away stops the job until etcd is back.
    """
    return overruled or (unproven and member_missing)
