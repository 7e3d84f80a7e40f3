"""Which process was killed, and whether for lack of memory: kernel and schedulers. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.patterns import kernel, launchers, shells
from holdfast.analysis.logs.wreckage import Exit, LogLine, Sighting, Wreckage


class Kill(msgspec.Struct, frozen=True, kw_only=True):
    who: str
    """the subject of a sentence"""
    confidence: float
    rank: int | None = None
    host: str = ""
    pid: int | None = None
    what: str = ""
    seen: tuple[Sighting, ...] = ()
    told: tuple[LogLine, ...] = ()
    """lines in which launchers report the end"""
    cgroup: bool = False
    """the limit of a cgroup was reached, not the end of the machine's memory"""
    look: str = ""
    """the command that shows more"""


def by_kernel(wreckage: Wreckage) -> Kill | None:
    seen = wreckage.seen(kernel.OOM_KILL) or wreckage.seen(kernel.OOM_INVOKED)
    if not seen:
        return None
    everything = wreckage.seen(kernel.OOM_KILL, kernel.OOM_INVOKED)
    cgroup = bool(sightings.saying(everything, "cgroup|MEMCG"))
    pids = [int(pid) for one in seen if (pid := one.fields.get("pid"))]
    name = sightings.field(seen, "name") or "a process"
    kill = (
        _known_rank(wreckage, pids)
        or _only_sigkilled_rank(wreckage, name)
        or _unidentified_process(wreckage, name, next(iter(pids), None), seen[0].line.host)
    )
    return msgspec.structs.replace(kill, seen=seen, cgroup=cgroup)


def _known_rank(wreckage: Wreckage, pids: Sequence[int]) -> Kill | None:
    owners = {r.pid: r for r in wreckage.ranks if r.pid is not None}
    mine = next((owners[pid] for pid in pids if pid in owners), None)
    if mine is None:
        return None
    who = f"rank {mine.rank} (pid {mine.pid})"
    return Kill(who=who, confidence=0.97, rank=mine.rank, host=mine.host, pid=mine.pid)


def _only_sigkilled_rank(wreckage: Wreckage, name: str) -> Kill | None:
    """One rank alone ended by SIGKILL: the kernel's process and it are most likely the same."""
    killed = {e.rank: e for e in sigkills(wreckage) if e.rank is not None}
    if len(killed) != 1:
        return None
    (end,) = killed.values()
    who = f"{name}, and rank {end.rank} died of SIGKILL"
    return Kill(who=who, confidence=0.9, rank=end.rank, host=end.host, pid=end.pid)


def _unidentified_process(wreckage: Wreckage, name: str, pid: int | None, host: str) -> Kill:
    """No line ties it to a rank; beside other troubles it may be an old kill of another process."""
    who = f"{name} (pid {pid})" if pid else name
    ours = bool(re.search("python|^pt_|ray", name)) or not wreckage.roots()
    return Kill(who=who, confidence=0.9 if ours else 0.6, host=host, pid=pid, what=who)


def by_scheduler(wreckage: Wreckage, *more: LogPattern) -> Kill | None:
    tasks = sightings.saying(wreckage.seen(launchers.SLURM_TASK), "Out [Oo]f [Mm]emory")
    slurm = wreckage.seen(launchers.SLURM_OOM)
    pods = sightings.saying(wreckage.seen(launchers.POD_ENDED), "OOMKilled")
    ray = sightings.saying(wreckage.seen(launchers.RAY_DIED), "low on memory")
    seen = (*tasks, *slurm, *pods, *ray, *wreckage.seen(*more))
    if not seen:
        return None
    task = sightings.field(tasks, "tasks")
    host = sightings.field(tasks, "host") or seen[0].line.host
    subject = f"task {task}" if task else sightings.who(seen, "a process of the job")
    return Kill(
        who=f"{subject} on {host}" if task and host else subject,
        confidence=0.95,
        rank=int(task) if task.isdecimal() else next(iter(sightings.writers(seen)), None),
        host=host,
        what="" if task else "memory limit of the job or container",
        seen=seen,
        look="sacct -j $SLURM_JOB_ID --format=JobID,State,MaxRSS,ReqMem"
        if tasks or slurm
        else "kubectl describe pods | grep -A5 'Last State'"
        if pods
        else "journalctl -k | grep -i oom",
    )


def by_unknown_sender(wreckage: Wreckage) -> Kill | None:
    """Killed, and nothing says by which process."""
    killed = sigkills(wreckage)
    if killed:
        first = killed[0]
        return Kill(
            who="a rank" if first.rank is None else f"rank {first.rank}",
            confidence=0.4,
            rank=first.rank,
            host=first.host,
            pid=first.pid,
            told=(first.line,),
        )
    workers = _killed_workers(wreckage)
    if workers:
        return Kill(
            who=f"a loader worker of {sightings.who(workers)}",
            confidence=0.5,
            rank=workers[0].rank,
            host=workers[0].line.host,
            what="DataLoader worker",
            seen=workers,
        )
    shell = tuple(
        one
        for one in wreckage.seen(shells.SHELL_ENDED, shells.SHELL_TRANSLATED)
        if "killed" in {shells.in_english(one.fields.get(name, "")) for name in shells.HOW}
    )
    if not shell:
        return None
    return Kill(who="the program", confidence=0.4, rank=shell[0].rank, seen=shell)


def sigkills(wreckage: Wreckage) -> Sequence[Exit]:
    """Ends by SIGKILL that the launcher did not cause itself."""
    return [e for e in wreckage.exits if e.code in (-9, 137) and not e.teardown]


def _killed_workers(wreckage: Wreckage) -> tuple[Sighting, ...]:
    told = [one for one in wreckage.sightings if one.slug == "dataloader-killed"]
    return sightings.saying(told, "signal: Killed")
