"""Which of a job's hosts a fault of a host or of a link is injected on."""

from __future__ import annotations

from holdfast.analysis.drill.rehearsal import JobShape, Rehearsal


def store_host(job: JobShape) -> str:
    """Where the launchers meet, and the ranks' store is."""
    return job.hosts[0]


def other_host(rehearsal: Rehearsal) -> str:
    """The rank's own, but never the store's: that is another fault. Asked for several hosts."""
    job = rehearsal.job
    host = job.host_of(rehearsal.rank)
    return host if host != store_host(job) else job.hosts[-1]


def named_for(rehearsal: Rehearsal) -> tuple[str, ...]:
    """The rank's host, where several tell them apart."""
    job = rehearsal.job
    return (job.host_of(rehearsal.rank),) if len(job.hosts) > 1 else ()


def ranks_without(job: JobShape, host: str) -> int:
    return sum(job.host_of(rank) != host for rank in range(job.ranks))
