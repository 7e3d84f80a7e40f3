"""The terminal was closed.

What you see   `Received 1 death signal, shutting down workers` or `got signal: 1`, right after an
               ssh session ended, a laptop slept or a window was closed.
Why            When a terminal goes away, the kernel sends SIGHUP to the processes that belong to
               it. torchrun takes that as a request to end.
How to be sure The time of the end is the time the session ended (`last`, `journalctl -u ssh`).
Fix            Start the job where no terminal can take it along: tmux or screen, `nohup … &`,
               `systemd-run --user --scope`, or the scheduler.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://github.com/pytorch/pytorch/issues/76894
"""

from __future__ import annotations

import signal

from holdfast.analysis.job import phrases
from holdfast.analysis.logs import blame, stop_signals
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD703", slug="sighup-terminal", traits=RunTraits(priority=100, told_to_stop=True)
)

FIX = "start it inside tmux or screen, or with `nohup holdfast run … &`"


@FAULT.run
def the_terminal_went_away(scene: Scene) -> Verdict | None:
    if scene.told_to_stop == "SIGHUP":
        return FAULT.verdict(
            "the terminal was closed: holdfast itself got SIGHUP; no rank is to blame",
            ranks=(),
            victims=exits.fallen(scene, ()),
            certain=True,
            fatal=True,
            fix=FIX,
            evidence=[Evidence(quote="SIGHUP to the launcher")],
        )
    told = [e for e in exits.cause(scene) if e.signal == signal.SIGHUP]
    if not told:
        return None
    ranks = [e.rank for e in told]
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} was ended by SIGHUP{phrases.at_step(told[0].view)}: "
        f"its terminal went away, or somebody sent it{phrases.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=FIX,
        evidence=[phrases.how_it_ended(e) for e in told],
    )


# --- explain -------------------------------------------------------------------------------------

HANGUP = FAULT.log_pattern(
    "hangup",
    r"^Hangup\b|\bSIGHUP\b.*(?:received|caught|terminat)|(?:received|caught|got) (?:signal )?SIGHUP"
    r"|terminated by signal SIGHUP|exited on signal 1 \(Hangup\)",
    anchors=("Hangup", "SIGHUP"),
    example="mpirun noticed that process rank 0 with PID 1011 on node node-a exited on signal 1 "
    "(Hangup).",
)


@FAULT.explain
def the_launcher_lost_its_terminal(wreckage: Wreckage) -> Diagnosis | None:
    told = stop_signals.received(wreckage, "1", "SIGHUP") or stop_signals.forwarded(
        wreckage, "SIGHUP"
    )
    seen = told or wreckage.seen(HANGUP)
    hung = blame.by_signal(wreckage, signal.SIGHUP)
    if not seen and not hung:
        return None
    return FAULT.diagnosis(
        "the launcher was told to end by SIGHUP: the terminal or ssh session it was started from "
        "went away, and it took the ranks along; nothing in the job failed",
        confidence=0.92 if told else 0.8,
        seen=seen,
        evidence=[blame.of_exit(end) for end in hung[:2]],
        culprit=Culprit(what="the terminal (signal 1 to the launcher)"),
        victims=blame.of(wreckage).members,
        fix="start it inside tmux or screen, with `nohup … &`, or through the scheduler",
        next="tmux new -s train",
        unknown=("what closed it: a lost connection, a laptop that slept, a closed window",),
    )
