"""The scheduler ended the job: preemption or time limit.

What you see   `slurmstepd: error: *** STEP 123.0 ON a CANCELLED AT … DUE TO PREEMPTION ***` or `…
               DUE TO TIME LIMIT ***`, SIGTERM to all processes, and SIGKILL a little later. Nothing
               in the job failed.
Why            A job with higher priority needed the nodes, or the requested time is over. Slurm
               sends SIGCONT and SIGTERM first, and SIGKILL after GraceTime (preemption) or KillWait
               (time limit, 30 s unless configured).
How to be sure `sacct -j ID --format=State,End,Timelimit` says PREEMPTED, TIMEOUT or CANCELLED. From
               inside, SIGTERM looks the same for all three; holdfast compares the time with
               SLURM_JOB_END_TIME. Long before it: preempted, or cancelled by a person. Where that
               is not set, and under Kubernetes, LSF and PBS, which publish no end time, holdfast
               only says that the job was told to stop (`external-sigterm`).
Fix            Save on SIGTERM or often enough, submit with `--requeue`, and start from the newest
               checkpoint. For the limit: request more `--time`, or `--signal=TERM@120` to have more
               time to save. It is not a failure of the job: do not look for a bug.
Known limits   Only Slurm publishes the end time of a job; a preemption and a cancellation by a
               person look the same before it.
Sources        https://slurm.schedmd.com/preempt.html (signals and GraceTime)
               https://slurm.schedmd.com/sbatch.html (SLURM_JOB_END_TIME, --signal, --requeue)
               https://slurm.schedmd.com/slurm.conf.html (KillWait)
               aws/aws-node-termination-handler: pkg/monitor/spotitn (notice of a spot instance)
               https://cloud.google.com/compute/docs/instances/preemptible
               https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events (Preempt)
               ray-project/ray: python/ray/train/v2/api/exceptions.py (PreemptionError)
"""

from __future__ import annotations

import re
import signal

from holdfast import shell_words, text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import (
    CannotInject,
    Injection,
    Preempt,
    SignalProcess,
    Then,
)
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import lost_nodes
from holdfast.analysis.logs import blame, sightings
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import launchers
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.cpu import Scheduler
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD907",
    slug="preempted",
    related=("external-sigterm", "rank-killed", "node-lost", "endpoint-single-point"),
    traits=RunTraits(priority=110, told_to_stop=True, whole_job=True),
)

SCHEDULER_SIGNALS = ("SIGTERM", "SIGUSR1", "SIGUSR2")
"""what schedulers send; the last two only with a requested warning (`--signal=USR1@60`) and
`--signals-to-handle`. Ctrl-C and a closed terminal come from people."""
NEAR_LIMIT = 60.0
"""seconds: Slurm checks time limits about every half minute, and warns up to a minute early"""
LIMIT_OUTDATED_AFTER = 600.0
"""seconds past the known end: then the limit was changed since and is not known"""


@FAULT.run
def ended_by_scheduler(scene: Scene) -> Verdict | None:
    scheduler = scene.scheduler
    if scene.told_to_stop not in SCHEDULER_SIGNALS or scheduler is None or scheduler.left is None:
        return None
    if scheduler.left < -LIMIT_OUTDATED_AFTER:
        return None
    return FAULT.verdict(
        f"{_what_happened(scene.told_to_stop, scheduler, scheduler.left)}; "
        "not a failure of the job",
        ranks=(),
        victims=exits.fallen(scene, ()),
        certain=True,
        fatal=True,
        fix=f"see the scheduler's record with `sacct -j {shell_words.word(scheduler.job, 'JOBID')} "
        "--format=State,End,Timelimit`; submit it again (`--requeue` does so automatically)",
        evidence=[
            Evidence(quote=f"{scene.told_to_stop} to the launcher"),
            Evidence(quote=_time_left(scheduler.left), source="SLURM_JOB_END_TIME"),
        ],
    )


@FAULT.run
def node_taken_by_scheduler(scene: Scene) -> Verdict | None:
    """One node of several: the others may go on without it."""
    told = [
        node
        for node in lost_nodes.told_to_stop(scene)
        if node.told_to_stop in SCHEDULER_SIGNALS
        and node.scheduler is not None
        and node.scheduler.left is not None
        and node.scheduler.left >= -LIMIT_OUTDATED_AFTER
    ]
    if scene.told_to_stop or not told:
        return None
    node = told[0]
    scheduler, left = node.scheduler, node.scheduler.left if node.scheduler else None
    if scheduler is None or left is None:
        return None
    return FAULT.verdict(
        f"{lost_nodes.with_ranks(told)}: {_what_happened(node.told_to_stop, scheduler, left)}; not "
        "a failure of the job",
        ranks=lost_nodes.ranks_of(scene, told),
        hosts=[one.name for one in told],
        victims=lost_nodes.victims(scene, told),
        certain=True,
        fix=f"see the scheduler's record with `sacct -j {shell_words.word(scheduler.job, 'JOBID')} "
        "--format=State,End,Timelimit`",
        evidence=[
            Evidence(quote=f"{one.told_to_stop} to the launcher on {one.name}", host=one.name)
            for one in told
        ],
    )


def _what_happened(sign: str, scheduler: Scheduler, left: float) -> str:
    job = f"{scheduler.name} job {scheduler.job}"
    if left <= NEAR_LIMIT:
        return f"the time limit of {job} was reached ({_time_left(left)}): {sign}"
    if sign != "SIGTERM":
        return f"{job} received the warning it requested, {sign}, with {_time_left(left)}"
    return (
        f"{scheduler.name} took the machine from job {scheduler.job} before its time limit "
        f"({_time_left(left)}): preempted, or cancelled by a person"
    )


def _time_left(seconds: float) -> str:
    if seconds < 0:
        return f"{text.elapsed(-seconds)} past the limit"
    return f"{text.elapsed(seconds)} left"


# --- explain -------------------------------------------------------------------------------------

TAKEN = FAULT.log_pattern(
    "taken",
    r"(?P<preempted>[Pp]reempted by (?:a )?pod|node is being preempted|instance .{0,40}preempted"
    r"|[Ss]pot (?:instance )?interruption|Preempting|job (?:was |is |has been )?preempted"
    # Kubernetes, when the machine is taken away from the pod.
    r"|in response to imminent node shutdown|evicted by a node shutdown)"
    r"|(?P<limit>this job is timed-out|TERM_RUNLIMIT|job killed: walltime \S+ exceeded"
    r"|DeadlineExceeded|TIME_?LIMIT|exceeded (?:its )?(?:wall)?time limit)",
    anchors=(
        "reempted by ",
        "being preempted",
        "preempted",
        "response to imminent node shutdown",
        "evicted by a node shutdown",
        "pot interruption",
        "pot instance interruption",
        "Preempting",
        "this job is timed-out",
        "TERM_RUNLIMIT",
        "job killed: walltime",
        "DeadlineExceeded",
        "time limit",
    ),
    example="=>> PBS: job killed: walltime 3630 exceeded limit 3600",
    role=Role.CONFIRMATION,
)
NOTICE = FAULT.log_pattern(
    "notice",
    # What clouds announce: AWS, its metadata and its agents; Compute Engine; Azure; SkyPilot; Ray.
    r"Spot ITN received|EC2 Spot Instance Interruption Warning|\bspot_interrupted\b"
    r"|\bSpotInterruptionKind\b|^\{\"action\": ?\"(?:terminate|stop|hibernate)\", ?\"time\": ?"
    r"\"[\dTZ:.-]{10,40}\"\}|compute\.instances\.(?:preempted|terminateOnHostMaintenance)"
    r"|Instance was preempted|[\"']EventType[\"']: ?[\"']Preempt[\"']"
    r"|[Cc]luster (?:\S{1,80} )?is preempted or failed|PreemptionByScheduler"
    r"|interrupted by node preemption \(preempted_ranks=\[(?P<ranks>[\d, ]{0,4000})\]",
    anchors=(
        "Spot ITN received",
        "Spot Instance Interruption Warning",
        "spot_interrupted",
        "SpotInterruptionKind",
        "compute.instances.",
        "Instance was preempted",
        "EventType",
        "is preempted or failed",
        "PreemptionByScheduler",
        "interrupted by node preemption",
        '{"action": "',
        '{"action":"',
    ),
    example="Spot ITN received. Instance will be interrupted at 2026-11-16T10:02:00Z",
    role=Role.CONFIRMATION,
)


@FAULT.explain
def cloud_took_a_machine(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NOTICE)
    if not seen:
        return None
    own, host = blame.of(wreckage).own, seen[0].line.host
    named = [int(rank) for rank in re.findall(r"\d+", sightings.field(seen, "ranks"))]
    return FAULT.diagnosis(
        "the cloud or the cluster took a machine back from the job"
        + (f", with {text.ranks(named)} on it" if named else "")
        + ("; check the errors before that first" if own else "; nothing in the job failed"),
        confidence=0.5 if own else 0.85,
        seen=seen,
        culprit=Culprit(what="the provider of the machine", host=host),
        victims=blame.of(wreckage).members,
        fix="save when the notice comes (30 s to 2 min before) and often enough besides, and "
        "restart from the newest checkpoint on another machine",
        ruled_out=() if own else ("a failure in the job: none was reported before",),
    )


@FAULT.explain
def scheduler_reported_end(wreckage: Wreckage) -> Diagnosis | None:
    reported = [
        s
        for s in wreckage.seen(launchers.SLURM_CANCELLED)
        if s.fields.get("why", "").startswith(("TIME", "PREEMPT", "JOB REQUEUE"))
    ]
    seen = tuple(reported) or wreckage.seen(TAKEN)
    if not seen:
        return None
    why = seen[0].fields.get("why", "")
    limit = "TIME" in why or "limit" in seen[0].fields
    taken = "it was requeued" if "REQUEUE" in why else "it was preempted"
    host, job = seen[0].fields.get("host", ""), seen[0].fields.get("job", "")
    own = blame.of(wreckage).own
    return FAULT.diagnosis(
        f"the scheduler ended the job: {'its time limit was reached' if limit else taken}; "
        + ("check the errors before that first" if own else "nothing in the job failed"),
        confidence=0.5 if own else 0.92 if reported else 0.75,
        seen=seen,
        culprit=Culprit(what="the scheduler" + (f" (job {job})" if job else ""), host=host),
        victims=blame.of(wreckage).members,
        fix="request more `--time`, or save often and on SIGTERM and submit with `--requeue`",
        next=shell_words.command("sacct -j {} --format=State,End,Timelimit", job.partition(".")[0])
        or "sacct --format=JobID,State,End,Timelimit",
        ruled_out=() if own else ("a failure in the job: none was reported before",),
    )


# --- drill ---------------------------------------------------------------------------------------

GRACE = 30.0
"""seconds: Slurm's KillWait, unless configured"""


@FAULT.drill()
def take_the_machine(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"SIGTERM to all processes of the job {rehearsal.when}, as Slurm preempts, SIGKILL "
        f"after {GRACE:.0f} s; then the job is started again",
        act=Preempt(grace=GRACE),
        then=Then.ENDS,
        culprits=(),
        hosts=rehearsal.job.hosts if len(rehearsal.job.hosts) > 1 else (),
    )


@FAULT.drill("one-host", needs=("hosts",))
def take_one_host(rehearsal: Rehearsal) -> Injection | CannotInject:
    host = rehearsal.job.host_of(rehearsal.rank)
    if host == hosts.store_host(rehearsal.job):
        return CannotInject("the rank is on the host that coordinates: the job ends with it")
    return Injection(
        does=f"SIGTERM to the launcher of {host} {rehearsal.when}; the others go on without it",
        act=SignalProcess(number=signal.SIGTERM, to="launcher"),
        then=Then.RESTARTS,
        slugs=("preempted", "external-sigterm"),
        culprits=(),
        hosts=(host,),
        fewest_hosts=1,
        world=hosts.ranks_without(rehearsal.job, host),
    )
