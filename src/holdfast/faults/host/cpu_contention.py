"""The ranks get too little CPU time.

What you see   Steps of uneven length, idle GPUs, and finally timeouts that blame the network
               although nothing is wrong with it: a rank that got no CPU time was late to the
               collective.
Why            Each rank needs its own core to launch kernels or compute, and its loaders need more.
               A cgroup quota (docker --cpus, Kubernetes limits.cpu) stops all threads for the rest
               of each 100 ms period once it is used up; an affinity mask (Slurm, taskset) confines
               them; processes of other users compete for the cores. Ranks that each start a thread
               for every core compete with each other.
How to be sure nr_throttled in the cgroup's cpu.stat, `nproc`, `uptime`, `top`, cpu.pressure. A
               single reading of the load says little about the next hours, so load alone is only a
               note. While a job runs: the second number of /proc/PID/task/TID/schedstat,
               nanoseconds in which a thread was ready and got no core. holdfast reports it when it
               explains the delay, before it calls any rank slow.
Fix            Raise the quota or request more cores (`--cpus`, limits.cpu, --cpus-per-task), start
               fewer ranks, stop other programs; OMP_NUM_THREADS times the ranks should not exceed
               the cores (torchrun sets it to 1 when there are several ranks).
Known limits   It names no culprit among the ranks. Processes outside a container are not visible
               from inside. From logs alone it is only a guess.
Sources        https://docs.kernel.org/scheduler/sched-bwc.html (throttling)
               https://docs.kernel.org/accounting/psi.html (pressure)
               https://docs.kernel.org/scheduler/sched-stats.html (schedstat)
               https://github.com/pytorch/pytorch/issues/172315
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.drill.host_acts import BurnCpu
from holdfast.analysis.drill.injection import CannotInject, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import cpu_starvation, phrases
from holdfast.analysis.job.cpu_starvation import CpuShare
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Cgroup, MachineFacts, known
from holdfast.analysis.scene import surroundings
from holdfast.analysis.scene.cpu import Processor
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.scene.secondary_errors import TIMED_OUT
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD410",
    slug="cpu-contention",
    related=("slow-rank", "slow-rank-timeout", "process-limit"),
    traits=RunTraits(priority=410, no_culprit=True, survives_steps=True, whole_job=True),
)

THROTTLED = 0.10
"""share of periods in which the quota ran out"""
PRESSURE = 25.0
"""per cent of the last minute in which some task waited for a core (PSI some avg60)"""

LONG_RUNNING = 60.0
"""seconds; a younger busy process may end soon"""


@FAULT.check(needs=("load",))
def fewer_cores_than_ranks(facts: MachineFacts) -> Finding:
    load, nproc = known(facts.load), facts.plan.nproc
    if load.cpus_usable >= nproc:
        return FAULT.ok(f"{load.cpus_usable} cores for {nproc} ranks")
    confined = load.cpus_usable < load.cpus_online
    return FAULT.warning(
        f"{nproc} ranks would share {load.cpus_usable} core{'s' if load.cpus_usable > 1 else ''}",
        reason="they will run in turns, and each collective waits for the slowest",
        evidence=[
            Evidence(
                quote=f"{load.cpus_usable} of {load.cpus_online} cores may be used",
                source="sched_getaffinity",
            )
        ],
        fix="request more cores from the scheduler (`--cpus-per-task`), or see `taskset -p $$`"
        if confined
        else f"start at most {load.cpus_online} ranks here",
    )


@FAULT.check(needs=("cgroup",))
def cpu_quota_short(facts: MachineFacts) -> Finding:
    cgroup, nproc = known(facts.cgroup), facts.plan.nproc
    reasons = [
        why
        for found, why in (
            (
                cgroup.cpu_quota is not None and cgroup.cpu_quota < nproc,
                f"the quota is less than one core for each of {nproc} ranks",
            ),
            (
                (cgroup.throttled_share or 0) > THROTTLED,
                "the quota often ran out, which stopped all threads until the next period",
            ),
            (
                (cgroup.cpu_pressure or 0) > PRESSURE,
                "processes in this cgroup already wait for a core",
            ),
        )
        if found
    ]
    if not reasons:
        return FAULT.ok(f"the CPU quota is sufficient ({_quota_in_words(cgroup)})")
    # Pressure alone may come from a build that has just ended.
    long_running = (cgroup.cpu_quota or nproc) < nproc or (cgroup.throttled_share or 0) > THROTTLED
    return (FAULT.warning if long_running else FAULT.note)(
        f"this cgroup gets too little CPU time: {_quota_in_words(cgroup)}",
        reason="; ".join(reasons),
        evidence=[Evidence(quote=_quota_in_words(cgroup), source=f"cgroup {cgroup.path}")],
        fix="raise the quota (docker `--cpus`, Kubernetes limits.cpu, a unit's CPUQuota=), or "
        "start fewer ranks here",
    )


def _quota_in_words(cgroup: Cgroup) -> str:
    quota = "no quota" if cgroup.cpu_quota is None else f"quota {cgroup.cpu_quota:g} cores"
    share, pressure = cgroup.throttled_share, cgroup.cpu_pressure
    throttled = "" if share is None else f", throttled in {share:.0%} of periods"
    waited = "" if pressure is None else f", {pressure:.0f} % of the last minute under pressure"
    return quota + throttled + waited


@FAULT.check(needs=("load",))
def other_processes_busy(facts: MachineFacts) -> Finding:
    load, nproc = known(facts.load), facts.plan.nproc
    if load.cpus_usable < nproc:
        return FAULT.ok(f"{len(load.busy)} other busy processes")  # fewer_cores_than_ranks reports
    left = load.cpus_usable - len(load.busy)
    if left < nproc:
        long_running = [p for p in load.busy if p.age >= LONG_RUNNING]
        remain_busy = load.cpus_usable - len(long_running) < nproc
        many = (
            "1 other busy process leaves"
            if len(load.busy) == 1
            else (f"{len(load.busy)} other busy processes leave")
        )
        return (FAULT.warning if remain_busy else FAULT.note)(
            f"{many} {max(left, 0)} of {load.cpus_usable} cores for {nproc} ranks",
            reason="each used more than half a core during the check; ranks will have to wait"
            if remain_busy
            else "some have just started and may end before the job starts",
            evidence=[
                Evidence(quote=p.description, source=f"/proc/{p.pid}/stat") for p in load.busy[:5]
            ],
            fix="wait for them, or stop those that are yours; otherwise start fewer ranks here",
        )
    most_taken = load.load1 > load.cpus_online * 0.75  # less is normal, and may be this check's own
    if most_taken and load.cpus_online - load.load1 < nproc:
        return FAULT.note(
            f"the load of the last minute was {load.load1:.1f} on {load.cpus_online} cores",
            reason="no busy process explains it: it may have ended, or wait for a disk",
            evidence=[Evidence(quote=f"{load.load1:.2f}", source="/proc/loadavg")],
        )
    return FAULT.ok(f"load {load.load1:.1f} on {load.cpus_online} cores, {len(load.busy)} busy")


# --- run -----------------------------------------------------------------------------------------


@FAULT.run
def ranks_starved_of_cpu(scene: Scene) -> Verdict | None:
    """Never certain and no culprit: a rank without a core is late through no fault of its own."""
    short = cpu_starvation.find(scene)
    if short is None:
        return None
    machine = surroundings.of_rank(scene, short.ranks[0]).processor
    if machine is None:  # it is read before the next look
        return None
    there = phrases.on_node(scene, short.ranks[0])
    all_ranks = len(short.ranks) == _living_here(scene, short)
    who = "the ranks" if all_ranks and len(short.ranks) > 1 else text.ranks(short.ranks)
    them = "it" if len(short.ranks) == 1 else "they"
    if isinstance(machine, Processor):
        where, fix, more = (
            _cores_and_load(scene, short, machine),
            _fix(machine),
            _machine_evidence(machine),
        )
    else:
        where, fix = "what used it could not be read", f"see what uses the CPU with `top`{there}"
        more = [Evidence(quote=machine.why)]
    return FAULT.verdict(
        f"{who}{there} got {short.got * 100:.0f} % of the CPU time {them} needed in the last "
        f"{text.elapsed(short.seconds)}: {where}; no rank is to blame",
        ranks=(),
        certain=False,
        fix=fix,
        evidence=[_schedstat_evidence(short), *more],
    )


def _living_here(scene: Scene, short: CpuShare) -> int:
    beside = surroundings.on_its_machine(scene, short.ranks[0])
    return sum(view.death is None for view in beside)


def _cores_and_load(scene: Scene, short: CpuShare, machine: Processor) -> str:
    """'2 cores, 4 ranks, and pid 812 (ffmpeg) uses 1.8 cores'"""
    ranks = _living_here(scene, short)
    wanted = f" that need {short.asked:.1f}" if short.asked > machine.cores else ""
    taken = _largest_consumer(machine) or ("" if wanted else "no other busy process is visible")
    ours = f"{_count(machine.cores, 'core')}, {_count(ranks, 'rank')}{wanted}"
    return f"{ours}, and {taken}" if taken else ours


def _largest_consumer(machine: Processor) -> str:
    if machine.quota is not None and (machine.throttled or 0) > THROTTLED:
        share = (machine.throttled or 0) * 100
        return f"the quota of {machine.quota:g} ran out in {share:.0f} % of its periods"
    if not machine.neighbours:
        return ""
    first = machine.neighbours[0]
    busiest = f"pid {first.pid} ({first.name}) uses {first.cores:.1f} cores"
    if machine.strangers == 1:
        return busiest
    return f"{machine.strangers} other processes use {machine.taken:.1f} cores ({busiest})"


def _count(count: float, what: str) -> str:
    return f"{count:g} {what}{'' if count == 1 else 's'}"


def _fix(machine: Processor) -> str:
    if (machine.throttled or 0) > THROTTLED:
        return "raise the quota (docker `--cpus`, Kubernetes limits.cpu), or start fewer ranks here"
    if machine.neighbours:
        return "stop those that are yours, or wait for them; otherwise start fewer ranks here"
    return "start fewer ranks or threads (OMP_NUM_THREADS) here, or request more cores"


def _schedstat_evidence(short: CpuShare) -> Evidence:
    return Evidence(
        quote=f"{text.ranks(short.ranks)}: {short.ran:.1f} s on a core, {short.queued:.1f} "
        f"s ready without one, in {short.seconds:.1f} s",
        source="/proc/PID/task/*/schedstat",
    )


def _machine_evidence(machine: Processor) -> list[Evidence]:
    pressure = "" if machine.pressure is None else f", pressure {machine.pressure:.0f} %"
    return [
        *(
            Evidence(quote=f"pid {n.pid} `{n.command}`: {n.cores:.1f} cores", source="/proc")
            for n in machine.neighbours
        ),
        Evidence(quote=f"load {machine.load:.1f}{pressure}", source="/proc"),
    ]


# --- explain -------------------------------------------------------------------------------------

CROWDED = FAULT.log_pattern(
    "crowded",
    r"will create (?P<workers>\d+) worker processes in total\. Our suggested max number of worker "
    r"in current system is (?P<cores>\d+)",
    anchors="Our suggested max number of worker",
    example="UserWarning: This DataLoader will create 16 worker processes in total. Our suggested "
    "max number of worker in current system is 4, which is smaller than what this DataLoader is "
    "going to create.",
    # Harmless in most jobs: reported only where a rank was late and nothing else explains it.
    role=Role.CONTEXT,
)


@FAULT.explain
def loader_workers_exceed_cores(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(CROWDED)
    late = wreckage.seen(watchdog.WATCHDOG, watchdog.GLOO_TIMEOUT) or any(
        one.consequence == TIMED_OUT for one in wreckage.raised
    )
    if not seen or not late or wreckage.roots():
        return None
    workers, cores = sightings.field(seen, "workers"), sightings.field(seen, "cores")
    return FAULT.diagnosis(
        f"ranks waited for each other until the timeout, and each loader started {workers} workers "
        f"on {cores} cores: a rank without CPU time is late",
        confidence=0.3,
        seen=seen,
        culprit=Culprit(what=f"{workers} loader workers per rank on {cores} cores"),
        fix="use fewer loader workers, OMP_NUM_THREADS=1, or more cores (--cpus-per-task, --cpus)",
        next="nproc; uptime; cat /sys/fs/cgroup/cpu.stat",
        unknown=["how busy the CPUs were: the log does not say"],
    )


# --- drill ---------------------------------------------------------------------------------------


ENOUGH = 30.0
"""seconds that the rest of the job takes: a lack of CPU time is known after some of them"""


@FAULT.drill()
def other_programs_use_the_cores(rehearsal: Rehearsal) -> Injection | CannotInject:
    left = (rehearsal.job.steps - rehearsal.at_step) * rehearsal.job.seconds_per_step
    if left < ENOUGH:
        return CannotInject(f"the job is over {left:.0f} s later: too soon for it to be noticed")
    return Injection(
        does=f"other programs on all cores {rehearsal.when}, until that was said",
        act=BurnCpu(),
        then=Then.GOES_ON,
        culprits=(),
        lifted=True,
    )
