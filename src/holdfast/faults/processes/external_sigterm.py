"""The job, or one of its ranks, was told to stop.

What you see   `Received 15 death signal, shutting down workers`, exit code -15 (143 in a shell), or
               `KeyboardInterrupt`; the job ends although nothing in it failed.
Why            SIGTERM is how schedulers, containers and people ask a process to exit: a time limit,
               a preemption, `docker stop`, `kill`. SIGINT is Ctrl-C. It is not a failure of the
               job, and a restart would ignore the request.
How to be sure When the launcher itself received the signal, holdfast says so. When only one rank
               received it, that process was targeted; the scheduler's record or the audit log
               (`sudo ausearch -sc kill -i`) names the sender.
Fix            A scheduler: request more time, save on SIGTERM, or let it requeue the job. One rank
               only: find the sender.
Known limits   A SIGTERM does not say who sent it or why; only Slurm's end time and log lines tell a
               preemption from a cancellation. After another rank's failure a launcher sends the
               same signal.
Sources        https://slurm.schedmd.com/scancel.html
               https://docs.docker.com/reference/cli/docker/container/stop/
               torch/distributed/elastic/multiprocessing/api.py: SignalException
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, SignalProcess, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import lost_nodes, phrases
from holdfast.analysis.logs import blame, stop_signals
from holdfast.analysis.logs.patterns import launchers
from holdfast.analysis.logs.wreckage import LoggedException, Sighting, Wreckage
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD704",
    slug="external-sigterm",
    related=("preempted", "sighup-terminal", "rank-killed"),
    traits=RunTraits(priority=120, told_to_stop=True, whole_job=True),
)


@FAULT.run
def told_to_stop(scene: Scene) -> Verdict | None:
    if scene.told_to_stop not in ("", "SIGHUP"):  # that one is the terminal's: sighup-terminal
        return FAULT.verdict(
            f"stopped by {phrases.stop_name(scene.told_to_stop)}",
            ranks=(),
            victims=exits.fallen(scene, ()),
            certain=True,
            fatal=True,
            fix="" if scene.told_to_stop != "SIGINT" else "start it again to continue",
            evidence=[Evidence(quote=f"{scene.told_to_stop} to the launcher")],
        )
    received = [e for e in exits.cause(scene) if e.signal in (signal.SIGTERM, signal.SIGINT)]
    if not received:
        return None
    ranks = [e.rank for e in received]
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} was terminated by {phrases.signal_name(received[0].signal)} "
        f"from outside{phrases.at_step(received[0].view)}; holdfast did not send it"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="find who sent it: the scheduler's record, or `sudo ausearch -sc kill -i`",
        evidence=[phrases.how_it_ended(e) for e in received],
    )


@FAULT.run
def node_told_to_stop(scene: Scene) -> Verdict | None:
    """One node's launcher got a signal; the others end their ranks in order, and may go on
    without it. Ctrl-C is meant for the whole job, wherever it is pressed."""
    told = lost_nodes.told_to_stop(scene)
    if scene.told_to_stop or not told or told[0].told_to_stop == "SIGHUP":
        return None  # that one is the terminal's: sighup-terminal
    sign = told[0].told_to_stop
    same = [node for node in told if node.told_to_stop == sign]
    return FAULT.verdict(
        f"{lost_nodes.with_ranks(same)} {text.plural(same, 'was', 'were')} told to stop by "
        f"{phrases.stop_name(sign)}",
        ranks=lost_nodes.ranks_of(scene, same),
        hosts=[node.name for node in same],
        victims=lost_nodes.victims(scene, same),
        certain=True,
        fatal=sign == "SIGINT",
        fix="start it again to continue"
        if sign == "SIGINT"
        else "find who sent it: the scheduler's record, or `sudo ausearch -sc kill -i` on "
        f"{same[0].name}",
        evidence=[
            Evidence(quote=f"{sign} to the launcher on {node.name}", host=node.name)
            for node in same
        ],
    )


# --- explain -------------------------------------------------------------------------------------

STOP_SIGNAL_NAMES = {"15": "SIGTERM", "SIGTERM": "SIGTERM", "2": "SIGINT", "SIGINT": "SIGINT"}
SHOW_JOB_RECORD = "sacct --format=JobID,State,ExitCode,End"


@FAULT.explain
def launcher_told_to_stop(wreckage: Wreckage) -> Diagnosis | None:
    received = (
        stop_signals.received(wreckage, *STOP_SIGNAL_NAMES)
        or stop_signals.forwarded(wreckage, "SIGINT")
        or stop_signals.noticed_by_trainer(wreckage)
    )
    cancelled = [s for s in wreckage.seen(launchers.SLURM_CANCELLED) if not s.fields.get("why")]
    interrupted = [r for r in wreckage.raised if r.kind == "KeyboardInterrupt"]
    if blame.of(wreckage).own or not (received or cancelled or interrupted):
        return None
    if any(s.fields.get("why") for s in wreckage.seen(launchers.SLURM_CANCELLED)):
        return None  # the scheduler says why: a better answer
    if any(one.slug == "preempted" for one in wreckage.sightings):
        return None  # a cloud does
    seen = received or tuple(cancelled)
    return FAULT.diagnosis(
        _what_happened(received=bool(received), cancelled=cancelled),
        confidence=0.7
        if not seen
        else 0.6
        if not received and _only_step_cancelled(cancelled)
        else 0.85,
        seen=seen,
        evidence=[_quote(r) for r in interrupted[:1]],
        culprit=Culprit(what="the sender of the signal"),
        victims=blame.of(wreckage).members,
        fix="find who asked (a scheduler, a time limit, a container stop, a person). If the job "
        "hung before, a time limit has ended it: `holdfast run` names the rank that the "
        "others wait for, and `holdfast explain --pid` does while it runs. If it made progress, "
        "save on SIGTERM so that nothing is lost next time",
        next=SHOW_JOB_RECORD
        if cancelled
        else "journalctl --since '-1h' | grep -iE 'stop|kill|oomd'",
        ruled_out=("an exception or a crash: no rank reported one before",),
        unknown=(
            "who sent it",
            "whether the job still made progress: a hang that a time limit ended looks the same",
        ),
    )


def _only_step_cancelled(cancelled: Sequence[Sighting]) -> bool:
    """srun also ends a step when one of its tasks failed, but never the job."""
    return all("." in s.fields["job"] for s in cancelled)


def _what_happened(*, received: bool, cancelled: Sequence[Sighting]) -> str:
    if cancelled and not received and _only_step_cancelled(cancelled):
        return (
            "the step was cancelled through Slurm: by its user, or by srun because one of its "
            "tasks had failed, which this log does not show"
        )
    if cancelled:
        return "the job was cancelled through Slurm, by its user or an administrator"
    if received:
        return "the job received a stop signal from outside, and its ranks were ended"
    return "the job was interrupted: Ctrl-C, or SIGINT from a notebook or a wrapper"


def _quote(raised: LoggedException) -> Evidence:
    line = raised.line
    return Evidence(quote=raised.kind, source=line.source, line=line.number, rank=line.rank)


@FAULT.explain
def one_rank_told_to_stop(wreckage: Wreckage) -> Diagnosis | None:
    ends = blame.by_signal(wreckage, signal.SIGTERM, signal.SIGINT)
    if not ends or stop_signals.received(wreckage, *STOP_SIGNAL_NAMES) or blame.of(wreckage).own:
        return None
    if wreckage.seen(launchers.SLURM_CANCELLED, launchers.CLOSING):
        return None
    first = ends[0]
    return FAULT.diagnosis(
        f"{blame.subject(first)} was terminated by {phrases.signal_name(-first.code)}, and no "
        "launcher reported sending it",
        confidence=0.6,
        culprit=Culprit(rank=first.rank, host=first.host, pid=first.pid),
        victims=blame.of(wreckage).others(first.rank),
        evidence=[blame.of_exit(end) for end in ends[:3]],
        fix="find who sent it: the scheduler's record, a stopped container, `sudo ausearch -sc "
        "kill -i`",
        next=SHOW_JOB_RECORD,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("who sent it; after another rank's failure a launcher sends the same",),
    )


# --- drill ---------------------------------------------------------------------------------------


@FAULT.drill(quick=True)
def tell_the_launcher_to_stop(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"SIGTERM to the launcher {rehearsal.when}; then the job is started again",
        act=SignalProcess(number=signal.SIGTERM, to="launcher"),
        then=Then.ENDS,
        culprits=(),
        hosts=hosts.named_for(rehearsal),
    )
