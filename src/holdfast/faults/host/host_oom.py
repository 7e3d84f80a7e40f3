"""The machine or the cgroup ran out of memory.

What you see   A rank disappears: exit code -9, or `Signal 9 (SIGKILL) received`, no traceback. The
               others report a lost peer or time out. `Killed process … (python)` in the kernel log;
               in Kubernetes `OOMKilled`, exit code 137.
Why            When memory runs out, the kernel's OOM killer ends the process with the highest
               score: on the whole machine, or in the cgroup when its own limit is reached. A
               container or a Slurm job can be killed on a machine that has plenty free. Typical
               causes are loaders that copy the dataset into each worker, checkpoints gathered on
               rank 0, and pinned memory.
How to be sure `dmesg -T | grep -i oom` (needs root on most machines) and oom_kill in the cgroup's
               memory.events. A SIGKILL without either came from another process. holdfast checks
               three things: OOM kills in this cgroup, the kernel log, and the memory available now.
               It says what it could not read.
Fix            Use fewer loader workers or ranks, a smaller prefetch, a larger --memory (docker),
               --mem (Slurm) or limits.memory (Kubernetes); stop other programs on the machine. Save
               sharded checkpoints instead of gathering them.
Known limits   The need per rank is an estimate. Without the kernel log and the cgroup's counter a
               SIGKILL cannot be attributed to memory. systemd-oomd and earlyoom are recognized in
               logs only.
Sources        https://docs.kernel.org/admin-guide/cgroup-v2.html (memory.events, memory.pressure)
               torvalds/linux mm/oom_kill.c
               https://github.com/pytorch/pytorch/issues/13246
"""

from __future__ import annotations

import errno
import re

from holdfast import text
from holdfast.analysis.drill.host_acts import LimitMemory
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import oom_evidence, phrases
from holdfast.analysis.logs import oom_kills, sightings
from holdfast.analysis.logs.patterns import host_memory
from holdfast.analysis.logs.patterns.host_memory import OOM_DAEMON, REFUSED
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Cgroup, HostLoad, MachineFacts, known
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD405",
    slug="host-oom",
    related=("rank-killed", "dataloader-killed", "gpu-oom", "shm-too-small"),
    traits=RunTraits(priority=200),
)
FAULT.log_patterns.extend(host_memory.ALL)
FAULT.errno(errno.ENOMEM, "the kernel had no memory for it")

GIB = 1 << 30
MEMORY_A_RANK = GIB
"""Python, torch and a CUDA context take one to three GiB of host memory, before any data"""
DAY = 86400.0
PRESSURE = 10.0
"""per cent of the last minute in which some task waited for memory (PSI some avg60)"""


@FAULT.check(needs=("cgroup",))
def cgroup_memory_short(facts: MachineFacts) -> list[Finding]:
    cgroup = known(facts.cgroup)
    return [_cgroup_oom_kills(cgroup), _cgroup_memory_low(cgroup, facts.plan.nproc)]


def _cgroup_oom_kills(cgroup: Cgroup) -> Finding:
    if cgroup.oom_kills is None:
        return FAULT.skipped("this cgroup does not count OOM kills")
    if not cgroup.oom_kills:
        return FAULT.ok("no cgroup OOM kill")
    evidence = [Evidence(quote=f"oom_kill {cgroup.oom_kills}", source=f"cgroup {cgroup.path}")]
    summary = f"the OOM killer ended {_processes(cgroup.oom_kills)} in this cgroup"
    if cgroup.memory_limit is None:
        return FAULT.note(
            summary,
            reason="the counter has no date and the cgroup no limit: it may be long ago",
            evidence=evidence,
        )
    return FAULT.warning(
        summary,
        reason=f"its limit of {text.size(cgroup.memory_limit)} was not enough before; the counter "
        "starts when the cgroup is created and does not say when",
        evidence=evidence,
        fix="raise its memory limit (docker --memory, Slurm --mem, limits.memory), or use fewer "
        "loader workers",
    )


@FAULT.check(needs=("kernel_log",))
def kernel_log_oom_kills(facts: MachineFacts) -> Finding:
    kills = [event for event in known(facts.kernel_log) if event.kind == "oom"]
    if not kills:
        return FAULT.ok("no OOM kill in the kernel log")
    recent = [k for k in kills if k.seconds_ago is None or k.seconds_ago < DAY]
    evidence = [
        Evidence(
            quote=k.text
            + ("" if k.seconds_ago is None else f" ({text.duration(k.seconds_ago)} ago)"),
            source="kernel log",
        )
        for k in (recent or kills)[-3:]
    ]
    if not recent:
        return FAULT.note(
            f"the kernel's OOM killer ended {_processes(len(kills))}, none in the last day",
            reason="relevant if this job died on this machine before",
            evidence=evidence,
        )
    return FAULT.warning(
        f"the kernel's OOM killer ended {_processes(len(recent))} in the last day",
        reason="a job that needs as much memory will be killed again",
        evidence=evidence,
        fix="see what uses the memory with `ps aux --sort=-rss | head`; use fewer loader workers",
    )


@FAULT.check(needs=("load",))
def machine_memory_low(facts: MachineFacts) -> Finding:
    load, nproc = known(facts.load), facts.plan.nproc
    free, total = load.memory_available, load.memory_total
    tiny = free < MEMORY_A_RANK * nproc or (
        free < total * 0.05 and free < 4 * MEMORY_A_RANK * nproc
    )
    if not tiny:
        return FAULT.ok(f"{text.size(free)} of {text.size(total)} memory is available")
    return FAULT.warning(
        f"only {text.size(free)} of memory is available for {nproc} rank{'s' if nproc > 1 else ''}",
        reason=f"estimate: a rank takes {text.size(MEMORY_A_RANK)} or more of host memory before "
        "any data; when memory runs out, the OOM killer ends a process",
        evidence=[Evidence(quote=_memory(load), source="/proc/meminfo")],
        fix="see what uses it with `ps aux --sort=-rss | head`, or start fewer ranks here",
    )


def _cgroup_memory_low(cgroup: Cgroup, nproc: int) -> Finding:
    limit = cgroup.memory_limit
    if limit is None:
        return FAULT.ok("this cgroup has no memory limit")
    left = limit - (cgroup.memory_used or 0)
    evidence = [Evidence(quote=_cgroup_memory(cgroup), source=f"cgroup {cgroup.path}")]
    fix = "raise its limit (docker --memory, Slurm --mem, limits.memory), or start fewer ranks here"
    if limit < MEMORY_A_RANK * nproc or (cgroup.memory_pressure or 0) > PRESSURE:
        return FAULT.warning(
            f"this cgroup may use {text.size(limit)} of memory, little for {nproc} "
            f"rank{'s' if nproc > 1 else ''}",
            reason=f"estimate: {text.size(MEMORY_A_RANK)} or more per rank before any data"
            if limit < MEMORY_A_RANK * nproc
            else "processes in it already wait for memory",
            evidence=evidence,
            fix=fix,
        )
    if left < MEMORY_A_RANK * nproc:
        # The page cache counts as used, and the kernel reclaims it: no warning without pressure.
        return FAULT.note(
            f"this cgroup has used {text.size(limit - left)} of {text.size(limit)} memory",
            reason="part of it may be page cache, which the kernel reclaims when needed",
            evidence=evidence,
            fix=fix,
        )
    return FAULT.ok(f"this cgroup has {text.size(left)} of {text.size(limit)} memory left")


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _memory(load: HostLoad) -> str:
    swap = f", swap {text.size(load.swap_used)} of {text.size(load.swap_total)} in use"
    return f"available {text.size(load.memory_available)} of {text.size(load.memory_total)}" + (
        swap if load.swap_total else ", no swap"
    )


def _cgroup_memory(cgroup: Cgroup) -> str:
    used = "unknown" if cgroup.memory_used is None else text.size(cgroup.memory_used)
    pressure = cgroup.memory_pressure
    waits = "" if pressure is None else f", {pressure:.0f} % of the last minute under pressure"
    return f"limit {text.size(cgroup.memory_limit or 0)}, used {used}{waits}"


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def oom_killer_ended_rank(scene: Scene) -> Verdict | None:
    killed = [e for e in exits.cause(scene) if oom_evidence.of_kill(scene, e)]
    if not killed:
        return None
    elsewhere = exits.killed_elsewhere(scene, killed)
    killed += [e for e in elsewhere if oom_evidence.of_kill(scene, e)]
    ranks = [e.rank for e in killed]
    victims = exits.fallen(scene, ranks)
    verb = text.plural(ranks, "was", "were")
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} {verb} killed by the kernel's OOM killer"
        f"{phrases.at_step(killed[0].view)}{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="use fewer loader workers or ranks, or raise the limit (docker --memory, Slurm --mem)",
        evidence=[
            *map(phrases.how_it_ended, killed),
            *oom_evidence.of_kill(scene, killed[0]),
            *phrases.unread_kernel_log(scene, ranks),
        ],
    )


# --- explain -------------------------------------------------------------------------------------

USE_LESS = (
    "use less: fewer loader workers, a smaller prefetch, sharded checkpoints instead of gathered "
    "ones; or raise the limit (docker --memory, Slurm --mem, Kubernetes limits.memory)"
)


@FAULT.explain
def host_out_of_memory(wreckage: Wreckage) -> Diagnosis | None:
    return (
        _oom_kill_in_kernel_log(wreckage)
        or _oom_kill_by_scheduler(wreckage)
        or _allocation_refused(wreckage)
        or _killed_without_proof(wreckage)
    )


def _oom_kill_in_kernel_log(wreckage: Wreckage) -> Diagnosis | None:
    kill = oom_kills.by_kernel(wreckage)
    if kill is None:
        return None
    return FAULT.diagnosis(
        f"the kernel's OOM killer ended {kill.who}: "
        + (
            "its cgroup (container, Slurm job) reached its limit"
            if kill.cgroup
            else "the machine had no memory left"
        ),
        confidence=kill.confidence,
        seen=kill.seen,
        culprit=Culprit(rank=kill.rank, host=kill.host, pid=kill.pid, what=kill.what),
        fix=USE_LESS,
        next="dmesg -T | grep -iE 'oom|killed process'",
        unknown=["which rank that process was: no line connects it to one"]
        if kill.rank is None
        else [],
    )


def _oom_kill_by_scheduler(wreckage: Wreckage) -> Diagnosis | None:
    kill = oom_kills.by_scheduler(wreckage, OOM_DAEMON)
    if kill is None:
        return None
    return FAULT.diagnosis(
        f"{kill.who} was OOM-killed, as the scheduler reported: the limit of the job or "
        "container was reached, whatever the machine had free",
        confidence=kill.confidence,
        seen=kill.seen,
        culprit=Culprit(rank=kill.rank, host=kill.host, pid=kill.pid, what=kill.what),
        fix=USE_LESS,
        next=kill.look,
    )


def _allocation_refused(wreckage: Wreckage) -> Diagnosis | None:
    # Pinning memory for RDMA fails with the same errno: that is ib-memlock; RAPIDS raises the
    # same exceptions for the GPU's memory, and cffi where SELinux forbids executable memory.
    other = re.compile(r"ibv_|CUDA error|write\+execute memory")
    seen = [one for one in wreckage.seen(REFUSED) if not other.search(one.line.text)]
    if not seen:
        return None
    plain = all(re.search(r"bad_alloc|Errno 12|mmap", one.line.text) for one in seen)
    return FAULT.diagnosis(
        f"{sightings.who(seen)} could not allocate host memory (not GPU memory)",
        confidence=0.7 if plain else 0.9,
        seen=seen,
        fix=USE_LESS,
        next="free -h; cat /sys/fs/cgroup/memory.max; ulimit -v",
        unknown=["whether the machine, a cgroup or ulimit -v refused it"],
    )


def _killed_without_proof(wreckage: Wreckage) -> Diagnosis | None:
    """SIGKILL alone: rank-killed is the better name, memory its most common cause."""
    kill = oom_kills.by_unknown_sender(wreckage)
    if kill is None:
        return None
    return FAULT.diagnosis(
        f"{kill.who} was killed by SIGKILL from outside; the OOM killer is the most common cause, "
        "but nothing here proves it",
        confidence=kill.confidence,
        culprit=Culprit(rank=kill.rank, host=kill.host, pid=kill.pid, what=kill.what),
        seen=kill.seen,
        evidence=[
            Evidence(quote=one.text, source=one.source, line=one.number) for one in kill.told
        ],
        fix=f"check the kernel log of that machine first; if it was memory: {USE_LESS}",
        next="dmesg -T | grep -iE 'oom|killed process'",
        unknown=["who sent the signal: the kernel log of that machine is missing"],
    )


@FAULT.drill()
def rank_outgrows_a_memory_limit(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"a memory limit for the job {rehearsal.when}, and rank {rehearsal.rank} takes more",
        act=LimitMemory(),
        then=Then.RESTARTS,
    )
