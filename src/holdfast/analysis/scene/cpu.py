"""A job's surroundings: what else uses its processors, and its scheduler. Pure nouns."""

from __future__ import annotations

import msgspec


class CpuLook(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What a rank had got of the processors, and waited for them, up to one moment."""

    at: float
    ran: float
    queued: float


class Neighbour(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """A busy process that does not belong to the job and may run on our cores."""

    pid: int
    name: str
    """the kernel's short name"""
    command: str
    """shortened, secrets removed"""
    cores: float


class Processor(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """What the machine says when ranks wait for a core."""

    cores: float
    """that the ranks may use: affinity and quota"""
    quota: float | None
    """of the cgroup, in cores"""
    throttled: float | None
    """share of the quota's periods in which it ran out, since the look before"""
    pressure: float | None
    """per cent of the last 10 s in which some task waited for a core (PSI some avg10)"""
    load: float
    """of the last minute"""
    strangers: int
    """busy processes that are none of ours and may run on our cores"""
    taken: float
    """cores they use, all together"""
    neighbours: tuple[Neighbour, ...]
    """the busiest of them, busiest first"""


class Scheduler(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Whose job this is, according to the environment."""

    name: str
    """'Slurm', 'Kubernetes', 'LSF', 'PBS'"""
    job: str
    left: float | None = None
    """seconds to the end of its time limit, below 0 when that is over; None when unknown"""
