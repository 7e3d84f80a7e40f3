"""The limit on processes and threads is too low.

What you see   `OpenBLAS blas_thread_init: pthread_create failed`,
               `RuntimeError: can't start new thread`,
               `BlockingIOError: [Errno 11] Resource temporarily unavailable` or
               `fork: retry: Resource temporarily unavailable`, at import or when the loaders
               start.
Why            Linux counts threads as processes. Three limits apply: RLIMIT_NPROC (all threads of
               the user on the machine; root and CAP_SYS_RESOURCE are exempt), pids.max of the
               cgroup (containers, Slurm, systemd), and kernel.threads-max or pid_max. Each rank
               starts a thread pool as large as the number of cores (OpenMP, MKL, OpenBLAS), plus
               the threads of CUDA, NCCL and autograd, and its loader workers.
How to be sure `ulimit -u`, `cat /sys/fs/cgroup/pids.max` and pids.current. holdfast's estimate per
               rank: 64 threads plus a pool of OMP_NUM_THREADS, or of one thread per core; it
               reports an error when not even 16 per rank are left.
Fix            Fewer threads: OMP_NUM_THREADS=1 (torchrun sets it when there are several ranks;
               OpenBLAS follows it too), fewer loader workers. A higher limit: `ulimit -u` up to the
               hard limit, `--pids-limit=-1` for a container, TasksMax= for a systemd unit.
Known limits   The need is an estimate. From a log alone holdfast cannot tell which of the three
               limits was reached, unless the pids controller names itself.
Sources        https://man7.org/linux/man-pages/man2/getrlimit.2.html (RLIMIT_NPROC)
               https://docs.kernel.org/admin-guide/cgroup-v2.html (pids.max)
               https://docs.docker.com/reference/cli/docker/container/run/ (--pids-limit)
"""

from __future__ import annotations

import errno

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Limits, MachineFacts, ProcessRoom, known
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD404", slug="process-limit", related=("fd-limit", "cpu-contention", "host-oom")
)
FAULT.errno(errno.EAGAIN, "the limit on processes and threads was reached (ulimit -u, pids.max)")

MINIMUM_A_RANK = 16
"""a bare Gloo rank runs 6 threads (measured, torch 2.13, 2 OpenMP threads); CUDA adds some"""
THREADS_A_RANK = 64
"""CUDA, NCCL, autograd, and loader workers with their helpers; pools of threads come on top"""


@FAULT.check(needs=("limits", "load", "process_room"))
def user_process_limit_too_low(facts: MachineFacts) -> Finding:
    return _judge_user_limit(facts, known(facts.limits), "this shell")


@FAULT.check(needs=("launcher_limits", "load", "process_room"))
def launcher_process_limit_too_low(facts: MachineFacts) -> Finding | list[Finding]:
    if facts.launcher_limits is None:
        return []
    limits = known(facts.launcher_limits)
    return _judge_user_limit(facts, limits, f"the launcher (pid {limits.pid})")


def _judge_user_limit(facts: MachineFacts, limits: Limits, whose: str) -> Finding:
    soft, hard, room = limits.nproc.soft, limits.nproc.hard, known(facts.process_room)
    if soft is None or limits.sys_resource:
        return FAULT.ok(f"{whose} has no limit on processes")
    can_raise = hard is None or hard > soft
    return _judge(
        facts,
        left=soft - room.user_threads,
        limit=f"{whose} has ulimit -u {soft}, and this user runs {room.user_threads} threads",
        source=f"/proc/{limits.pid}/limits",
        raise_it=f"`ulimit -u {hard or 'unlimited'}`"
        if can_raise
        else "ask an administrator for a higher `ulimit -u`",
    )


@FAULT.check(needs=("load", "process_room"))
def cgroup_or_kernel_process_limit_too_low(facts: MachineFacts) -> Finding:
    room = known(facts.process_room)
    left, limit, source, raise_it = min(_other_limits(room))
    return _judge(facts, left=left, limit=limit, source=source, raise_it=raise_it)


def _other_limits(room: ProcessRoom) -> list[tuple[int, str, str, str]]:
    """Limits of cgroup and kernel: how many are left, in words, the source, and how to raise it."""
    limits = [
        (
            ceiling - room.user_threads,
            f"{name} is {ceiling}, and this user runs {room.user_threads} threads",
            f"/proc/sys/{name.replace('.', '/')}",
            f"have an administrator raise it: `sysctl -w {name}=N`",
        )
        for name, ceiling in (
            ("kernel.threads-max", room.threads_max),
            ("kernel.pid_max", room.pid_max),
        )
    ]
    if room.pids_max is not None:
        used = room.pids_current or 0
        limits.append(
            (
                room.pids_max - used,
                f"the cgroup allows {room.pids_max} processes and threads; {used} are running",
                "pids.max",
                "raise pids.max (a container: `--pids-limit=-1`; a systemd unit: TasksMax=)",
            )
        )
    return limits


def _judge(facts: MachineFacts, *, left: int, limit: str, source: str, raise_it: str) -> Finding:
    nproc, pool = facts.plan.nproc, _thread_pool_size(facts)
    wanted = nproc * (THREADS_A_RANK + pool)
    if left >= wanted:
        return FAULT.ok(f"{left} more threads may be started; about {wanted} are needed")
    too_few = left < nproc * MINIMUM_A_RANK
    report = FAULT.error if too_few else FAULT.warning
    meaning = (
        "not enough for the ranks themselves" if too_few else "ranks may fail to start threads"
    )
    return report(
        f"only {max(left, 0)} more processes or threads may be started",
        reason=f"{meaning}; estimate: {THREADS_A_RANK} and a pool of {pool} for each of {nproc} "
        f"ranks, {wanted} in total",
        evidence=[Evidence(quote=limit, source=source)],
        fix=f"{raise_it}; or use fewer: `export OMP_NUM_THREADS=1`, fewer loader workers",
    )


def _thread_pool_size(facts: MachineFacts) -> int:
    """Size of the OpenMP and OpenBLAS pools: OMP_NUM_THREADS, or one thread per core."""
    named = facts.plan.environment.get("OMP_NUM_THREADS", "")
    return int(named) if named.isdecimal() else known(facts.load).cpus_usable


# --- explain -------------------------------------------------------------------------------------

THREADS = FAULT.log_pattern(
    "threads",
    r"can't start new thread|pthread_create failed(?!.{0,60}Operation not permitted)"
    r"|pthread_create\(?\)?:? .*Resource temporarily|thread: Resource temporarily unavailable"
    r"|ThreadPoolBuildError.{0,80}(?:code: 11\b|os error 11\b|Resource temporarily)"
    r"|failed to spawn thread: Os \{ code: 11\b|OMP: System error #11\b"
    r"|[Tt]hread creation failed|(?:failed|unable) to create (?:new )?(?:native|OS) thread"
    r"|unable to allocate necessary resources for OMP thread"
    r"|Call to pthread_create failed(?!.{0,60}Operation not permitted)",
    anchors=(
        "start new thread",
        "pthread_create",
        "hread creation failed",
        "native thread",
        "OS thread",
        "resources for OMP thread",
        "thread: Resource temporarily",
        "ThreadPoolBuildError",
        "failed to spawn thread: Os",
        "OMP: System error #11",
    ),
    example="OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: Resource "
    "temporarily unavailable",
)
FORK = FAULT.log_pattern(
    "fork",
    r"fork: (?:retry: )?Resource temporarily unavailable|fork rejected by pids controller"
    r"|fork\(\)? ?(?:failed)?:? .*Resource temporarily unavailable",
    anchors=("fork: ", "fork rejected by pids", "fork() ", "fork failed"),
    example="bash: fork: retry: Resource temporarily unavailable",
)
EAGAIN = FAULT.log_pattern(
    "again",
    r"BlockingIOError: \[Errno 11\] |OSError: \[Errno 11\] "
    r"|what\(\):\s+Resource temporarily unavailable",
    # EAGAIN of a socket is ordinary, so only where a program died of it.
    anchors=("[Errno 11] ", "what():  Resource temporarily"),
    example="BlockingIOError: [Errno 11] Resource temporarily unavailable",
)


@FAULT.explain
def process_limit_reached(wreckage: Wreckage) -> Diagnosis | None:
    sure = wreckage.seen(THREADS, FORK)
    seen = sure or wreckage.seen(EAGAIN)
    if not seen:
        return None
    line = seen[0].line
    by_cgroup = bool(sightings.saying(seen, "pids controller"))
    return FAULT.diagnosis(
        f"{sightings.who(seen)} could not start another "
        f"{'process or thread' if not wreckage.seen(THREADS) else 'thread'}: "
        + (
            "the pids limit of its cgroup was reached"
            if by_cgroup
            else "a limit on processes was reached (ulimit -u, pids.max of the cgroup, or "
            "kernel.threads-max), and threads count as processes"
        ),
        confidence=0.95 if sure else 0.65,
        seen=seen,
        culprit=Culprit(
            rank=line.rank,
            host=line.host,
            pid=line.pid,
            what="pids.max" if by_cgroup else "limit on processes and threads",
        ),
        fix="use fewer: `export OMP_NUM_THREADS=1` and fewer loader workers; or raise the limit: "
        "`ulimit -u` up to the hard limit, `--pids-limit=-1` for a container, TasksMax= for a "
        "systemd unit",
        next="ulimit -u; cat /sys/fs/cgroup/pids.max /sys/fs/cgroup/pids.current",
        unknown=[] if by_cgroup else ["which of the three limits it was"],
    )
