"""The terminal was closed.

What you see   `Received 1 death signal, shutting down workers` or `got signal: 1`, right after an
               ssh session ended, a laptop went to sleep or a window was closed.
Why            When a terminal goes away, the kernel sends SIGHUP to the processes that belong to
               it. torchrun treats that as a request to stop.
How to be sure The job ended when the session ended (`last`, `journalctl -u ssh`).
Fix            Start the job independent of the terminal: tmux or screen, `nohup … &`, `systemd-run
               --user --scope`, or the scheduler.
Known limits   SIGHUP can also be sent by a person or a script; holdfast does not see what closed
               the terminal.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://github.com/pytorch/pytorch/issues/76894
"""

from __future__ import annotations

import signal

from holdfast import text
from holdfast.analysis.drill import hosts
from holdfast.analysis.drill.injection import Injection, SignalProcess, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import lost_nodes, phrases
from holdfast.analysis.logs import blame, stop_signals
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Evidence, Verdict

FAULT = Fault(
    code="HOLD703",
    slug="sighup-terminal",
    related=("external-sigterm", "ipc-removed"),
    traits=RunTraits(priority=100, told_to_stop=True, whole_job=True),
)

USE_TMUX = "start it inside tmux or screen, or with `nohup holdfast run … &`"


@FAULT.run
def terminal_closed(scene: Scene) -> Verdict | None:
    if scene.told_to_stop == "SIGHUP":
        return FAULT.verdict(
            "stopped by SIGHUP: the terminal was closed",
            ranks=(),
            victims=exits.fallen(scene, ()),
            certain=True,
            fatal=True,
            fix=USE_TMUX,
            evidence=[Evidence(quote="SIGHUP to the launcher")],
        )
    received = [e for e in exits.cause(scene) if e.signal == signal.SIGHUP]
    if not received:
        return None
    ranks = [e.rank for e in received]
    victims = exits.fallen(scene, ranks)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} was ended by SIGHUP{phrases.at_step(received[0].view)}: "
        f"its terminal was closed, or another process sent it{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix=USE_TMUX,
        evidence=[phrases.how_it_ended(e) for e in received],
    )


@FAULT.run
def terminal_of_one_node_closed(scene: Scene) -> Verdict | None:
    """The others may go on without that node."""
    told = [node for node in lost_nodes.told_to_stop(scene) if node.told_to_stop == "SIGHUP"]
    if scene.told_to_stop or not told or told[0] is not lost_nodes.told_to_stop(scene)[0]:
        return None
    return FAULT.verdict(
        f"{lost_nodes.with_ranks(told)} {text.plural(told, 'was', 'were')} stopped by SIGHUP: the "
        "terminal was closed",
        ranks=lost_nodes.ranks_of(scene, told),
        hosts=[node.name for node in told],
        victims=lost_nodes.victims(scene, told),
        certain=True,
        fix=USE_TMUX,
        evidence=[
            Evidence(quote=f"SIGHUP to the launcher on {node.name}", host=node.name)
            for node in told
        ],
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
def launcher_received_sighup(wreckage: Wreckage) -> Diagnosis | None:
    received = stop_signals.received(wreckage, "1", "SIGHUP") or stop_signals.forwarded(
        wreckage, "SIGHUP"
    )
    seen = received or wreckage.seen(HANGUP)
    hung = blame.by_signal(wreckage, signal.SIGHUP)
    if not seen and not hung:
        return None
    return FAULT.diagnosis(
        "the launcher received SIGHUP: the terminal or ssh session it was started from was closed, "
        "and it ended the ranks; nothing in the job failed",
        confidence=0.92 if received else 0.8,
        seen=seen,
        evidence=[blame.of_exit(end) for end in hung[:2]],
        culprit=Culprit(what="the terminal (signal 1 to the launcher)"),
        victims=blame.of(wreckage).members,
        fix="start it inside tmux or screen, with `nohup … &`, or through the scheduler",
        next="tmux new -s train",
        unknown=("what closed it: a lost connection, a sleeping laptop, a closed window",),
    )


@FAULT.drill()
def close_the_terminal(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"SIGHUP to the launcher {rehearsal.when}; then the job is started again",
        act=SignalProcess(number=signal.SIGHUP, to="launcher"),
        then=Then.ENDS,
        culprits=(),
        hosts=hosts.named_for(rehearsal),
    )
