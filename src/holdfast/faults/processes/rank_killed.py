"""A rank was killed from outside.

What you see   Exit code -9 (137 in a shell), `Signal 9 (SIGKILL) received by PID …`, and no
               traceback: the process had no chance to say anything. The others then report
               `Connection reset by peer` or time out, and it is their messages that fill the log.
Why            SIGKILL cannot be caught. Somebody sent it: a person, a scheduler that ran out of
               patience after its SIGTERM, a memory watchdog such as earlyoom or systemd-oomd, a
               clean-up script with a broad pattern. The kernel's own out-of-memory kill looks the
               same and is told apart by its records: see host-oom.
How to be sure `sudo ausearch -sc kill -i` where auditing is on; `journalctl -u systemd-oomd`; the
               scheduler's record of the job. holdfast reads the order of deaths from the kernel,
               so the rank it names went first, and asks the cgroup and the kernel log whether
               memory was the reason. What it could not read, it says.
Fix            Find the sender. A scheduler: ask for more time or memory. A person: nothing is
               wrong with the job. holdfast starts the group again.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://man7.org/linux/man-pages/man2/pidfd_open.2.html
               https://www.freedesktop.org/software/systemd/man/latest/systemd-oomd.service.html
               https://github.com/deepspeedai/DeepSpeed/issues/4239
"""

from __future__ import annotations

import signal

from holdfast.analysis.job import oom_evidence, phrases
from holdfast.analysis.logs import blame, sightings, suspects
from holdfast.analysis.logs.own_errors import Trouble
from holdfast.analysis.logs.patterns import kernel, launchers
from holdfast.analysis.logs.wreckage import Exit, Wreckage
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Verdict

FAULT = Fault(code="HOLD701", slug="rank-killed", traits=RunTraits(priority=260, general=True))


@FAULT.run
def a_signal_ended_it_first(scene: Scene) -> Verdict | None:
    killed = [e for e in exits.cause(scene) if _from_outside(e)]
    if not killed or any(oom_evidence.of_kill(scene, e) for e in killed):
        return None
    ranks = [e.rank for e in killed]
    victims = exits.fallen(scene, ranks)
    name = phrases.signal_name(killed[0].signal)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} was killed by {name} from outside"
        f"{phrases.at_step(killed[0].view)}{_memory(scene, killed[0])}"
        f"{phrases.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="find who sent it: the scheduler's record, `journalctl -u systemd-oomd`, "
        "`sudo ausearch -sc kill -i`",
        evidence=[phrases.how_it_ended(e) for e in killed],
    )


def _from_outside(ending: Ending) -> bool:
    return bool(ending.signal) and ending.signal not in exits.CRASHES | exits.STOP_SIGNALS


def _memory(scene: Scene, ending: Ending) -> str:
    if ending.signal != signal.SIGKILL:
        return ""
    if scene.oom_kills >= 0:
        return "; the cgroup counts no kill for lack of memory"
    if isinstance(scene.kernel_events, Unread):
        return "; whether memory ran out could not be read"
    return "; the kernel log tells of no kill for lack of memory"


# --- explain -------------------------------------------------------------------------------------

SENDER = (
    "find who sent it: memory (`sudo dmesg -T | grep -i 'killed process'`), the scheduler's "
    "record, `journalctl -u systemd-oomd`, a clean-up script with a broad pattern"
)
UNSENT = (
    "who sent it: the kernel's and the scheduler's words are not here, and a kill for lack of "
    "memory looks the same"
)
KERNEL_LOG = "sudo dmesg -T | grep -iE 'killed process|oom'"


@FAULT.explain
def it_ended_by_a_signal(wreckage: Wreckage) -> Diagnosis | None:
    outside = {s.value for s in signal.Signals} - exits.CRASHES - exits.STOP_SIGNALS
    killed = blame.by_signal(wreckage, *outside)
    if not killed:
        return None
    known, first = blame.of(wreckage), killed[0]
    memory = wreckage.seen(kernel.OOM_KILL, kernel.OOM_INVOKED, launchers.SLURM_OOM)
    limit = [s for s in wreckage.seen(launchers.SLURM_CANCELLED) if s.fields.get("why")]
    others = known.others(first.rank)
    return FAULT.diagnosis(
        f"{blame.named(first)} was ended by {phrases.signal_name(-first.code)}, which no "
        f"process can catch and no rank sends itself{_fell(others)}",
        confidence=0.3 if memory or limit else _sure(killed, known.own),
        culprit=Culprit(rank=first.rank, host=first.host, pid=first.pid, what=_what(first)),
        victims=others,
        evidence=[*map(blame.of_exit, killed[:3]), *blame.complaints(wreckage)[:2]],
        fix=SENDER,
        next=KERNEL_LOG,
        ruled_out=blame.ruled_out(wreckage),
        unknown=() if memory else (UNSENT,),
    )


def _sure(killed: tuple[Exit, ...], own: tuple[Trouble, ...]) -> float:
    """Several at once: a launcher or scheduler that cleared away looks like this."""
    if own:
        return 0.3
    return 0.75 if len(killed) == 1 or killed[0].first else 0.6


def _what(end: Exit) -> str:
    if end.rank is not None or end.local_rank is None:
        return ""
    return f"local rank {end.local_rank}"


def _fell(others: tuple[int, ...]) -> str:
    return f"; {blame.plain(others)} lost it or waited in vain" if others else ""


@FAULT.explain
def it_fell_silent(wreckage: Wreckage) -> Diagnosis | None:
    """No word, no dump, though a living rank answers when another one calls for dumps."""
    suspect = suspects.find(wreckage)
    if suspect is None or suspect.how not in ("mute", "unheard") or len(suspect.ranks) > 1:
        return None
    mute = suspect.how == "mute"
    confidence = 0.75 if mute else 0.5 if suspect.ended else 0.3
    rank = suspect.ranks[0]
    why = (
        "the connections to it closed, so its process had ended"
        if suspect.ended
        else "a living rank would have answered the call for dumps"
        if mute
        else "nothing of it was heard"
    )
    return FAULT.diagnosis(
        f"rank {rank} vanished without a word, and {why}: killed from outside, as far as can be "
        f"told; {blame.plain(suspect.victims)} only noticed",
        confidence=confidence,
        seen=suspect.seen,
        culprit=suspects.culprit_on(wreckage, suspect),
        victims=suspect.victims,
        fix=SENDER,
        next=KERNEL_LOG,
        ruled_out=blame.ruled_out(wreckage),
        unknown=("how it ended: no launcher tells its exit code",
                 *blame.unknown(wreckage, rank)),
    )  # fmt: skip


@FAULT.explain
def ray_lost_its_worker(wreckage: Wreckage) -> Diagnosis | None:
    """Ray's list of potential causes is advice; that the process vanished is what it saw."""
    gone = sightings.saying(
        wreckage.seen(launchers.RAY_DIED),
        r"worker process has died|exit type: SYSTEM_ERROR|died unexpectedly|WorkerCrashedError",
    )
    if not gone or blame.of(wreckage).explained or blame.of(wreckage).own:
        return None
    first = gone[0].line
    return FAULT.diagnosis(
        "a Ray worker vanished without an exception of its own: killed from outside, for lack of "
        "memory or by somebody, or crashed in native code",
        confidence=0.5,
        seen=gone,
        culprit=Culprit(rank=first.rank, host=first.host, pid=first.pid, what="a Ray worker"),
        fix=SENDER,
        next="ray logs cluster --errors; " + KERNEL_LOG,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(UNSENT,),
    )
