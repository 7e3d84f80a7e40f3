"""A rank's process is stopped.

What you see   Nothing: the job makes no progress. `ps` shows state T for one rank. After the
               timeout the others abort. SIGTERM does not reach it, so shutting down takes 30 s
               longer than usual.
Why            SIGSTOP or SIGTSTP was sent: by a person, a job-control shell, a batch system that
               suspends jobs, a freezer or a debugger. A stopped process executes nothing; its
               sockets stay open, so the other ranks do not notice.
How to be sure `ps -o pid,stat,cmd -p PID`: T. holdfast calls a rank frozen after 3 s during which
               holdfast itself ran on time: when the whole machine was suspended, all timers start
               again. When all ranks are stopped at once, the job was suspended on purpose; that is
               reported and no action is taken.
Fix            `kill -CONT PID` if you know who stopped it and why; otherwise holdfast kills it and
               restarts the group.
Known limits   Who sent the signal is not recorded by the kernel. In a log, a stopped rank looks
               like one that hangs, unless torch asked it for a dump, which a rank that hangs still
               writes; and like one that was killed, unless a closed connection shows that one. What
               the lines cannot tell apart is said.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html (SIGSTOP, SIGCONT)
               https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html (state)
"""

from __future__ import annotations

import signal

from holdfast import text
from holdfast.analysis.collectives import worlds
from holdfast.analysis.drill.injection import (
    NO_OTHER_RANK,
    CannotInject,
    Injection,
    SignalProcess,
    Then,
)
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import blame, ras_evidence, suspects
from holdfast.analysis.logs.suspects import Suspect
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits, stopped
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD607",
    slug="rank-frozen",
    traits=RunTraits(priority=330, whole_job=True),
    related=("rank-stuck", "gil-held", "driver-hang", "preempted"),
)


@FAULT.run
def rank_is_stopped(scene: Scene) -> Verdict | None:
    frozen = stopped.stopped_ranks(scene)
    if not frozen:
        return None
    ranks = [v.rank for v in frozen]
    victims = _victims(scene, ranks)
    for_so_long = text.elapsed(scene.now - min(v.state_since for v in frozen))
    if frozen[0].activity and frozen[0].activity.state == "t":
        on_purpose = True  # a rank that a person debugs is never killed
        state = f"held by a debugger (state t) for {for_so_long}"
    elif on_purpose := _all_are_stopped(scene, frozen):
        state = f"stopped (state T) for {for_so_long}: all ranks are, so the job was suspended"
    else:
        state = f"stopped (state T) for {for_so_long}"
    waiting = f"; {text.ranks(victims)} cannot continue without it" if victims else ""
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} {text.plural(ranks, 'has', 'have')} been {state}{waiting}",
        ranks=ranks,
        victims=victims,
        certain=bool(victims) and not on_purpose,
        fix=f"let it continue: {phrases.pid_command(scene, 'kill -CONT', ranks)}",
        fix_after_end="find out who sent SIGSTOP or SIGTSTP: a person, a shell, the batch system",
        evidence=[_evidence(v) for v in frozen],
    )


def _victims(scene: Scene, frozen: list[int]) -> tuple[int, ...]:
    """The other ranks of their worlds: no other waits for them."""
    near = [p for p in worlds.parts(scene) if not {v.rank for v in p.ranks}.isdisjoint(frozen)]
    return tuple(sorted(rank for part in near for rank in exits.fallen(part, frozen)))


def _all_are_stopped(scene: Scene, frozen: list[RankView]) -> bool:
    living = [v for v in scene.ranks if v.activity is not None and v.death is None]
    return len(frozen) == len(living) and len(living) > 1


def _evidence(view: RankView) -> Evidence:
    state = view.activity.state if view.activity else "?"
    return Evidence(quote=f"State: {state}", source=f"/proc/{view.pid}/status", rank=view.rank)


# --- explain -------------------------------------------------------------------------------------

STOPPED = FAULT.log_pattern(
    "stopped",
    r"^\[\d+\][+-]?\s+(?:\d+ )?(?:Stopped|suspended)\b|State:\s+[Tt] \((?:stopped|tracing stop)\)"
    r"|Signals\.SIGSTOP",
    anchors=("  Stopped", "  suspended", "T (stopped)", "t (tracing stop)", "Signals.SIGSTOP"),
    example="[1]+  Stopped                 torchrun --nproc-per-node 4 train.py",
)
FIND_STOPPED = "ps -eo pid,stat,cmd | awk '$2 ~ /^[Tt]/'"


@FAULT.explain
def log_shows_a_stopped_process(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(STOPPED)
    if not seen:
        return None
    return FAULT.diagnosis(
        "a process of the job was stopped (SIGSTOP, Ctrl-Z or a debugger): it executes nothing and "
        "keeps its connections, so the others wait for it silently",
        confidence=0.75,
        seen=seen,
        victims=blame.of(wreckage).victims,
        fix="let it continue with `kill -CONT PID`; start long jobs detached from a terminal",
        next=FIND_STOPPED,
        unknown=("who or what stopped it",),
    )


@FAULT.explain
def silent_rank_kept_its_connections(wreckage: Wreckage) -> Diagnosis | None:
    """Silent like a killed one, but no rank lost a connection: a stopped process keeps them."""
    suspect = suspects.find(wreckage)
    if suspect is None or suspect.ended or suspect.how not in ("mute", "unheard"):
        return None
    if suspect.heeded_sigterm:
        return None
    who = text.ranks(suspect.ranks)
    return FAULT.diagnosis(
        f"{who} answered no other rank, and no connection to it closed: its process is stopped, "
        + _or(suspect),
        confidence=_sure(suspect),
        seen=suspect.seen,
        culprit=suspects.culprit_on(wreckage, suspect),
        victims=suspect.victims,
        fix="check whether the process still exists in state T; if so, `kill -CONT PID`",
        next=FIND_STOPPED,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(
            f"whether the process of {who} still exists",
            *blame.unknown(wreckage, *suspect.ranks[:2]),
        ),
    )


def _sure(suspect: Suspect) -> float:
    if suspect.heeded_sigterm is False or (suspect.alive and suspect.how == "mute"):
        return 0.65
    if suspect.how == "mute":
        return 0.55
    return 0.35 if suspect.alive else 0.25


def _or(suspect: Suspect) -> str:
    """What looks the same in these lines."""
    if suspect.heeded_sigterm is False:
        return (
            "or hangs in the kernel or a driver: its launcher's SIGTERM did not end it, as it ends "
            "a script that merely hangs"
        )
    if suspect.how == "unheard":
        return "or it hangs somewhere else; these lines do not show which"
    if suspect.alive:
        return "or its machine is; a script that hangs would still have answered"
    return "or it ended or was killed without closing one; a script that hangs would still answer"


@FAULT.explain
def nccl_ras_misses_a_stopped_process(wreckage: Wreckage) -> Diagnosis | None:
    """RAS says which process does not answer; on this machine the kernel says why."""
    answer = ras_evidence.newest(wreckage)
    if answer is None:
        return None
    frozen = [one for one in answer.silent if answer.states.get(one.pid) in ("T", "t")]
    if not frozen or len(frozen) < len(answer.silent):
        return None
    pids = " ".join(str(one.pid) for one in frozen)
    return FAULT.diagnosis(
        f"{ras_evidence.named(answer, frozen)} {'is' if len(frozen) == 1 else 'are'} stopped "
        "(state T) and cannot answer NCCL's RAS; the others wait",
        confidence=0.9,
        evidence=ras_evidence.quotes(answer),
        culprit=ras_evidence.culprit(answer, frozen),
        victims=ras_evidence.others(answer, frozen),
        fix=f"let it continue, if you know who stopped it and why: `kill -CONT {pids}`",
        next=f"ps -o pid,stat,cmd -p {','.join(pids.split())}",
        unknown=("who or what stopped it",),
    )


@FAULT.drill(quick=True)
def stop_a_rank(rehearsal: Rehearsal) -> Injection | CannotInject:
    if rehearsal.job.ranks == 1:
        return NO_OTHER_RANK
    return Injection(
        does=f"SIGSTOP to rank {rehearsal.rank} {rehearsal.when}",
        act=SignalProcess(number=signal.SIGSTOP),
        then=Then.RESTARTS,
        beside=("rank-stuck",),
    )
