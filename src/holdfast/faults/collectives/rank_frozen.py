"""A rank's process is stopped.

What you see   Nothing: the job stands still. `ps` shows state T for one rank. After the timeout the
               others abort. SIGTERM does not reach it, so the end takes 30 s longer than usual.
Why            SIGSTOP or SIGTSTP was sent: by a person, a job-control shell, a batch system that
               suspends jobs, a freezer or a debugger. A stopped process runs no instruction; its
               sockets stay open, so nobody notices.
How to be sure `ps -o pid,stat,cmd -p PID`: T. holdfast calls it frozen after 3 s in which it ran on
               time itself: when the whole machine was suspended, all clocks start again. When all
               ranks are stopped at once, somebody suspended the job on purpose: that is only said.
Fix            `kill -CONT PID` if you know who stopped it and why; else holdfast kills it and
               starts the group again.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html (SIGSTOP, SIGCONT)
               https://man7.org/linux/man-pages/man5/proc_pid_stat.5.html (state)
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import blame, suspects
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits, stopped
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Diagnosis, Evidence, Verdict

FAULT = Fault(code="HOLD607", slug="rank-frozen", traits=RunTraits(priority=330))


@FAULT.run
def it_does_not_run_at_all(scene: Scene) -> Verdict | None:
    still = stopped.stopped_ranks(scene)
    if not still:
        return None
    ranks = [v.rank for v in still]
    victims = exits.fallen(scene, ranks)
    since = min(v.state_since for v in still)
    if still[0].activity and still[0].activity.state == "T":
        living = [v for v in scene.ranks if v.activity is not None and v.death is None]
        what = f"stopped (state T) for {text.elapsed(scene.now - since)}"
        wholly = len(still) == len(living) and len(living) > 1
        what += ": all ranks are, so somebody suspended the whole job" if wholly else ""
    else:
        what = f"held by a debugger (state t) for {text.elapsed(scene.now - since)}"
        wholly = True  # nobody kills what a person is looking at
    waiting = f"; {text.ranks(victims)} can not go on without it" if victims else ""
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} {text.plural(ranks, 'is', 'are')} {what}{waiting}",
        ranks=ranks,
        victims=victims,
        certain=not wholly,
        fix=f"`kill -CONT {' '.join(str(v.pid) for v in still)}` lets it run on",
        evidence=[_evidence(v) for v in still],
    )


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
CONT = "ps -eo pid,stat,cmd | awk '$2 ~ /^[Tt]/'"


@FAULT.explain
def it_was_stopped(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(STOPPED)
    if not seen:
        return None
    return FAULT.diagnosis(
        "a process of the job was stopped (SIGSTOP, Ctrl-Z or a debugger): it runs nothing and "
        "keeps its connections, so the others wait for it without a word",
        confidence=0.75,
        seen=seen,
        victims=blame.of(wreckage).victims,
        fix="`kill -CONT PID` lets it run on; start long jobs where no key press reaches them",
        next=CONT,
        unknown=("who stopped it",),
    )


@FAULT.explain
def it_answered_nobody(wreckage: Wreckage) -> Diagnosis | None:
    """Silent like a killed one, but nobody lost a connection: a stopped process keeps them."""
    suspect = suspects.find(wreckage)
    if suspect is None or suspect.ended or suspect.how not in ("mute", "unheard"):
        return None
    who = blame.plain(suspect.ranks)
    return FAULT.diagnosis(
        f"{who} answered nobody, and no connection to it closed: a stopped process looks like this",
        confidence=0.45 if suspect.how == "mute" else 0.25,
        seen=suspect.seen,
        culprit=suspects.culprit_on(wreckage, suspect),
        victims=suspect.victims,
        fix="look whether it is still there, in state T: then `kill -CONT PID`",
        next=CONT,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(
            f"whether the process of {who} still exists",
            *blame.unknown(wreckage, *suspect.ranks[:2]),
        ),
    )
