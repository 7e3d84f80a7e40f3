"""The job, or one of its ranks, was told to stop.

What you see   `Received 15 death signal, shutting down workers`, exit code -15 (143 in a shell), or
               `KeyboardInterrupt`; the job ends although nothing in it failed.
Why            SIGTERM is how schedulers, containers and people ask a process to end: a time limit,
               a preemption, `docker stop`, `kill`. SIGINT is Ctrl-C. It is no fault of the job,
               and starting again would defy the one who asked.
How to be sure When the launcher itself was told, holdfast says so. When one rank alone got the
               signal, somebody picked that process; the scheduler's record or the audit log
               (`sudo ausearch -sc kill -i`) names the sender.
Fix            A scheduler: ask for more time, save on SIGTERM, or let it requeue the job. One rank
               alone: find who sent it.
Sources        https://slurm.schedmd.com/scancel.html
               https://docs.docker.com/reference/cli/docker/container/stop/
               torch/distributed/elastic/multiprocessing/api.py: SignalException
"""

from __future__ import annotations

import signal
from collections.abc import Sequence

from holdfast.analysis.job import phrases
from holdfast.analysis.logs import blame, stop_signals
from holdfast.analysis.logs.patterns import launchers
from holdfast.analysis.logs.wreckage import Raised, Sighting, Wreckage
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD704", slug="external-sigterm", traits=RunTraits(priority=120, told_to_stop=True)
)


@FAULT.run
def somebody_asked_it_to_end(scene: Scene) -> Verdict | None:
    if scene.told_to_stop in ("SIGTERM", "SIGINT"):
        asked = "interrupted (Ctrl-C)" if scene.told_to_stop == "SIGINT" else "told to stop"
        return FAULT.verdict(
            f"the job was {asked}: holdfast itself got {scene.told_to_stop}; no rank is to blame",
            ranks=(),
            victims=exits.fallen(scene, ()),
            certain=True,
            fatal=True,
            evidence=[Evidence(quote=f"{scene.told_to_stop} to the launcher")],
        )
    told = [e for e in exits.cause(scene) if e.signal in (signal.SIGTERM, signal.SIGINT)]
    if not told:
        return None
    ranks = [e.rank for e in told]
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} was ended by {phrases.signal_name(told[0].signal)} "
        f"from outside{phrases.at_step(told[0].view)}; holdfast did not send it"
        f"{phrases.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="find who sent it: the scheduler's record, or `sudo ausearch -sc kill -i`",
        evidence=[phrases.how_it_ended(e) for e in told],
    )


# --- explain -------------------------------------------------------------------------------------

ASKED = {"15": "SIGTERM", "SIGTERM": "SIGTERM", "2": "SIGINT", "SIGINT": "SIGINT"}
RECORD = "sacct --format=JobID,State,ExitCode,End"


@FAULT.explain
def the_launcher_was_told_to_end(wreckage: Wreckage) -> Diagnosis | None:
    told = stop_signals.received(wreckage, *ASKED) or stop_signals.forwarded(wreckage, "SIGINT")
    cancelled = [s for s in wreckage.seen(launchers.SLURM_CANCELLED) if not s.fields.get("why")]
    pressed = [r for r in wreckage.raised if r.kind == "KeyboardInterrupt"]
    if blame.of(wreckage).own or not (told or cancelled or pressed):
        return None
    if any(s.fields.get("why") for s in wreckage.seen(launchers.SLURM_CANCELLED)):
        return None  # the scheduler tells why: that is the better answer
    seen = told or tuple(cancelled)
    return FAULT.diagnosis(
        _sentence(told=bool(told), cancelled=cancelled),
        confidence=0.7 if not seen else 0.6 if not told and _step_only(cancelled) else 0.85,
        seen=seen,
        evidence=[_quote(r) for r in pressed[:1]],
        culprit=Culprit(what="whoever stopped the job"),
        victims=blame.of(wreckage).members,
        fix="nothing in the job is broken: find who asked (a scheduler, a container stop, a "
        "person), and save on SIGTERM so that nothing is lost next time",
        next=RECORD if cancelled else "journalctl --since '-1h' | grep -iE 'stop|kill|oomd'",
        ruled_out=("a fault in the job: no rank reported one before",),
        unknown=("who sent it",),
    )


def _step_only(cancelled: Sequence[Sighting]) -> bool:
    """srun ends a step itself too, when one of its tasks has failed; a job it does not."""
    return all("." in s.fields["job"] for s in cancelled)


def _sentence(*, told: bool, cancelled: Sequence[Sighting]) -> str:
    if cancelled and not told and _step_only(cancelled):
        return (
            "the step was cancelled through Slurm, by its user, or by srun because one of its "
            "tasks had failed and does not say so here"
        )
    if cancelled:
        return "the job was cancelled through Slurm, by its user or an administrator"
    if told:
        return "the launcher was told to end by a signal from outside, and ended its ranks"
    return "the job was interrupted: Ctrl-C, or SIGINT from a notebook or a wrapper"


def _quote(raised: Raised) -> Evidence:
    line = raised.line
    return Evidence(quote=raised.kind, source=line.source, line=line.number, rank=line.rank)


@FAULT.explain
def one_rank_was_told_to_end(wreckage: Wreckage) -> Diagnosis | None:
    ends = blame.by_signal(wreckage, signal.SIGTERM, signal.SIGINT)
    if not ends or stop_signals.received(wreckage, *ASKED) or blame.of(wreckage).own:
        return None
    if wreckage.seen(launchers.SLURM_CANCELLED, launchers.CLOSING):
        return None
    first = ends[0]
    return FAULT.diagnosis(
        f"{blame.named(first)} was ended by {phrases.signal_name(-first.code)}, and no "
        "launcher says that it sent it",
        confidence=0.6,
        culprit=Culprit(rank=first.rank, host=first.host, pid=first.pid),
        victims=blame.of(wreckage).others(first.rank),
        evidence=[blame.of_exit(end) for end in ends[:3]],
        fix="find who sent it: the scheduler's record, a stopped container, `sudo ausearch -sc "
        "kill -i`",
        next=RECORD,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("who sent it; after another rank's failure a launcher sends the same",),
    )
