"""Not enough processor time for the ranks.

What you see   Steps of uneven length, GPUs that idle, and in the end timeouts that blame the
               network while nothing is wrong with it: a rank that got no processor came late to
               the collective.
Why            Each rank needs a core of its own to launch kernels or compute, and its loaders
               more. A cgroup quota (docker --cpus, Kubernetes limits.cpu) stops all threads for
               the rest of each 100 ms period once it is used up; an affinity mask (Slurm, taskset)
               confines them; other people's processes take turns. Ranks that each start a thread
               for every core do it to each other.
How to be sure nr_throttled in the cgroup's cpu.stat, `nproc`, `uptime`, `top`, cpu.pressure. One
               look at the load says little about the hours to come, so load alone is only a note.
               While a job runs, the second number of /proc/PID/task/TID/schedstat: nanoseconds in
               which a thread was ready and got no core. holdfast says so when it explains the
               delay, before it calls any rank slow.
Fix            Raise the quota or ask for more cores (`--cpus`, limits.cpu, --cpus-per-task), start
               fewer ranks, stop what else runs; OMP_NUM_THREADS times the ranks should not exceed
               the cores (torchrun sets it to 1 when there are several ranks).
Sources        https://docs.kernel.org/scheduler/sched-bwc.html (throttling)
               https://docs.kernel.org/accounting/psi.html (pressure)
               https://docs.kernel.org/scheduler/sched-stats.html (schedstat)
               https://github.com/pytorch/pytorch/issues/172315
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.job import cpu_starvation
from holdfast.analysis.job.cpu_starvation import Share
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.machine import Cgroup, MachineFacts, known
from holdfast.analysis.scene.cpu import Processor
from holdfast.analysis.scene.scene import Scene
from holdfast.analysis.scene.secondary_errors import TIMED_OUT
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding, Verdict

FAULT = Fault(
    code="HOLD410",
    slug="cpu-contention",
    traits=RunTraits(priority=410, names_nobody=True, survives_steps=True),
)

THROTTLED = 0.10
"""share of periods in which the quota ran out"""
PRESSURE = 25.0
"""per cent of the last minute in which some task waited for a core (PSI some avg60)"""

LASTING = 60.0
"""seconds; a busy process that is younger may be over in a moment"""


@FAULT.check(needs=("load",))
def fewer_cores_than_ranks(facts: MachineFacts) -> Finding:
    load, nproc = known(facts.load), facts.plan.nproc
    if load.cpus_usable >= nproc:
        return FAULT.ok(f"{load.cpus_usable} cores for {nproc} ranks")
    confined = load.cpus_usable < load.cpus_online
    return FAULT.warning(
        f"{nproc} ranks would share {load.cpus_usable} core{'s' if load.cpus_usable > 1 else ''}",
        reason="they will run in turns, and each collective waits for the last of them",
        evidence=[
            Evidence(
                quote=f"{load.cpus_usable} of {load.cpus_online} cores may be used",
                source="sched_getaffinity",
            )
        ],
        fix="ask the scheduler for more (`--cpus-per-task`), or see `taskset -p $$`"
        if confined
        else f"start at most {load.cpus_online} ranks here",
    )


@FAULT.check(needs=("cgroup",))
def quota_is_short(facts: MachineFacts) -> Finding:
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
                "the quota often ran out before, and everything stood still till the next period",
            ),
            (
                (cgroup.cpu_pressure or 0) > PRESSURE,
                "processes in this cgroup already wait for a core",
            ),
        )
        if found
    ]
    if not reasons:
        return FAULT.ok(f"no quota in the way ({_seen(cgroup)})")
    # Pressure alone may be the echo of a build that has just ended.
    lasting = (cgroup.cpu_quota or nproc) < nproc or (cgroup.throttled_share or 0) > THROTTLED
    return (FAULT.warning if lasting else FAULT.note)(
        f"this cgroup gets too little processor time: {_seen(cgroup)}",
        reason="; ".join(reasons),
        evidence=[Evidence(quote=_seen(cgroup), source=f"cgroup {cgroup.path}")],
        fix="raise the quota (docker `--cpus`, Kubernetes limits.cpu, a unit's CPUQuota=), or "
        "start fewer ranks here",
    )


def _seen(cgroup: Cgroup) -> str:
    quota = "no quota" if cgroup.cpu_quota is None else f"quota {cgroup.cpu_quota:g} cores"
    share, pressure = cgroup.throttled_share, cgroup.cpu_pressure
    throttled = "" if share is None else f", throttled in {share:.0%} of periods"
    waited = "" if pressure is None else f", {pressure:.0f} % of the last minute under pressure"
    return quota + throttled + waited


@FAULT.check(needs=("load",))
def others_are_busy(facts: MachineFacts) -> Finding:
    load, nproc = known(facts.load), facts.plan.nproc
    if load.cpus_usable < nproc:
        return FAULT.ok(f"{len(load.busy)} busy processes besides")  # the cores are the news
    left = load.cpus_usable - len(load.busy)
    if left < nproc:
        lasting = [p for p in load.busy if p.age >= LASTING]
        stay = load.cpus_usable - len(lasting) < nproc
        many = (
            "1 other busy process leaves"
            if len(load.busy) == 1
            else (f"{len(load.busy)} other busy processes leave")
        )
        return (FAULT.warning if stay else FAULT.note)(
            f"{many} {max(left, 0)} of {load.cpus_usable} cores for {nproc} ranks",
            reason="each used more than half a core while we looked; ranks will have to wait"
            if stay
            else "some have only just started, and may be over when the job starts",
            evidence=[
                Evidence(quote=p.description, source=f"/proc/{p.pid}/stat") for p in load.busy[:5]
            ],
            fix="wait for them, or stop those that are yours; else start fewer ranks here",
        )
    half_taken = load.load1 > load.cpus_online / 2  # a little load is nobody's fault
    if half_taken and load.cpus_online - load.load1 < nproc:
        return FAULT.note(
            f"the load of the last minute was {load.load1:.1f} on {load.cpus_online} cores",
            reason="no process was seen at work that would explain it: it may be over, or be "
            "waiting for a disk",
            evidence=[Evidence(quote=f"{load.load1:.2f}", source="/proc/loadavg")],
        )
    return FAULT.ok(f"load {load.load1:.1f} on {load.cpus_online} cores, {len(load.busy)} busy")


# --- while a job runs --------------------------------------------------------------------------


@FAULT.run
def ranks_wait_for_a_core(scene: Scene) -> Verdict | None:
    """Never certain and nobody's guilt: whoever got no core came late through no fault of his."""
    short = cpu_starvation.find(scene)
    if short is None or scene.processor is None:  # at the next look the machine will be asked
        return None
    machine = scene.processor
    everybody = len(short.ranks) == sum(view.death is None for view in scene.ranks)
    who = "the ranks" if everybody and len(short.ranks) > 1 else text.ranks(short.ranks)
    them = "it" if len(short.ranks) == 1 else "they"
    if isinstance(machine, Processor):
        where, fix, more = (
            _where_it_went(scene, short, machine),
            _way_out(machine),
            _numbers(machine),
        )
    else:
        where, fix = "who took it could not be seen", "`top` shows who uses the processors"
        more = [Evidence(quote=machine.why)]
    return FAULT.verdict(
        f"{who} got {short.got * 100:.0f} % of the processor time {them} asked for in the last "
        f"{text.elapsed(short.seconds)}: {where}; no rank is to blame",
        ranks=(),
        certain=False,
        fix=fix,
        evidence=[_waited(short), *more],
    )


def _where_it_went(scene: Scene, short: Share, machine: Processor) -> str:
    """'2 cores, 4 ranks, and pid 812 (ffmpeg) uses 1.8 cores'"""
    ranks = sum(view.death is None for view in scene.ranks)
    wanted = f" that ask for {short.asked:.1f}" if short.asked > machine.cores else ""
    taken = _takers(machine) or ("" if wanted else "nobody else is seen at work from here")
    ours = f"{_many(machine.cores, 'core')}, {_many(ranks, 'rank')}{wanted}"
    return f"{ours}, and {taken}" if taken else ours


def _takers(machine: Processor) -> str:
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


def _many(count: float, what: str) -> str:
    return f"{count:g} {what}{'' if count == 1 else 's'}"


def _way_out(machine: Processor) -> str:
    if (machine.throttled or 0) > THROTTLED:
        return "raise the quota (docker `--cpus`, Kubernetes limits.cpu), or start fewer ranks here"
    if machine.neighbours:
        return "stop what is yours of it, or wait until it is over; else start fewer ranks here"
    return "start fewer ranks or threads (OMP_NUM_THREADS) here, or ask for more cores"


def _waited(short: Share) -> Evidence:
    return Evidence(
        quote=f"{text.ranks(short.ranks)}: {short.ran:.1f} s on a core, {short.queued:.1f} "
        f"s ready without one, in {short.seconds:.1f} s",
        source="/proc/PID/task/*/schedstat",
    )


def _numbers(machine: Processor) -> list[Evidence]:
    pressure = "" if machine.pressure is None else f", pressure {machine.pressure:.0f} %"
    return [
        *(
            Evidence(quote=f"pid {n.pid} `{n.command}`: {n.cores:.1f} cores", source="/proc")
            for n in machine.neighbours
        ),
        Evidence(quote=f"load {machine.load:.1f}{pressure}", source="/proc"),
    ]


# --- from the wreckage of a job ----------------------------------------------------------------

CROWDED = FAULT.log_pattern(
    "crowded",
    r"will create (?P<workers>\d+) worker processes in total\. Our suggested max number of worker "
    r"in current system is (?P<cores>\d+)",
    anchors="Our suggested max number of worker",
    example="UserWarning: This DataLoader will create 16 worker processes in total. Our suggested "
    "max number of worker in current system is 4, which is smaller than what this DataLoader is "
    "going to create.",
    # Harmless in most jobs: worth a word only where a rank came late and nothing else tells why.
    role=Role.CONTEXT,
)


@FAULT.explain
def too_many_wanted_the_cores(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(CROWDED)
    late = wreckage.seen(watchdog.WATCHDOG, watchdog.GLOO_TIMEOUT) or any(
        one.consequence == TIMED_OUT for one in wreckage.raised
    )
    if not seen or not late or wreckage.roots():
        return None
    workers, cores = sightings.field(seen, "workers"), sightings.field(seen, "cores")
    return FAULT.diagnosis(
        f"ranks waited for each other until the timeout, and each loader starts {workers} workers "
        f"on {cores} cores: a rank that gets no processor comes late",
        confidence=0.3,
        seen=seen,
        culprit=Culprit(what=f"{workers} loader workers a rank on {cores} cores"),
        fix="fewer loader workers, OMP_NUM_THREADS=1, or more cores (--cpus-per-task, --cpus)",
        next="nproc; uptime; cat /sys/fs/cgroup/cpu.stat",
        unknown=["how busy the processors were: the log does not say"],
    )
