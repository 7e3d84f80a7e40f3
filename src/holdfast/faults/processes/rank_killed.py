"""A rank was killed from outside.

What you see   Exit code -9 (137 in a shell), `Signal 9 (SIGKILL) received by PID …`, and no
               traceback: the process could not write anything. The others then report `Connection
               reset by peer` or time out, and their messages fill the log.
Why            SIGKILL cannot be caught. It was sent by a person, a scheduler whose grace period
               after SIGTERM was over, a memory watchdog such as earlyoom or systemd-oomd, or a
               clean-up script with a broad pattern. The kernel's OOM killer looks the same and is
               distinguished by its records: see host-oom.
How to be sure `sudo ausearch -sc kill -i` where auditing is on; `journalctl -u systemd-oomd`; the
               scheduler's record of the job. holdfast reads the order of exits from the kernel, so
               the rank it names exited first, and checks the cgroup and the kernel log for an OOM
               kill. It says what it could not read.
Fix            Find the sender. A scheduler: request more time or memory. A person: nothing is wrong
               with the job. holdfast restarts the group.
Known limits   The kernel does not record who sent a signal, so the sender is not known without
               auditing. From logs alone, a rank that vanished without a message may also have
               crashed, or have ended by itself (rank-exits-early): both are said.
Sources        https://man7.org/linux/man-pages/man7/signal.7.html
               https://man7.org/linux/man-pages/man2/pidfd_open.2.html
               https://www.freedesktop.org/software/systemd/man/latest/systemd-oomd.service.html
               https://github.com/deepspeedai/DeepSpeed/issues/4239
"""

from __future__ import annotations

import signal

from holdfast import text
from holdfast.analysis.drill.injection import Injection, SignalProcess, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import oom_evidence, phrases
from holdfast.analysis.logs import blame, sightings, suspects
from holdfast.analysis.logs.own_errors import Trouble
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import kernel, launchers
from holdfast.analysis.logs.suspects import Suspect
from holdfast.analysis.logs.wreckage import Exit, Wreckage
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene import exits, surroundings
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Culprit, Diagnosis, Verdict

FAULT = Fault(
    code="HOLD701",
    slug="rank-killed",
    related=("host-oom", "external-sigterm", "preempted", "native-crash"),
    traits=RunTraits(priority=260, general=True),
)


@FAULT.run
def killed_by_signal_first(scene: Scene) -> Verdict | None:
    killed = [e for e in exits.cause(scene) if _is_kill_from_outside(e)]
    if not killed or any(oom_evidence.of_kill(scene, e) for e in killed):
        return None
    killed += exits.killed_elsewhere(scene, killed)
    ranks = [e.rank for e in killed]
    victims = exits.fallen(scene, ranks)
    name = phrases.signal_name(killed[0].signal)
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} {text.plural(ranks, 'was', 'were')} killed by {name}"
        f"{phrases.at_step(killed[0].view)}{_oom_kill_in_words(scene, killed[0])}"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="find who sent it, if not the script itself: the scheduler's record, `journalctl -u "
        "systemd-oomd`, `sudo ausearch -sc kill -i`",
        evidence=[phrases.how_it_ended(e) for e in killed],
    )


def _is_kill_from_outside(ending: Ending) -> bool:
    return bool(ending.signal) and ending.signal not in exits.CRASHES | exits.STOP_SIGNALS


def _oom_kill_in_words(scene: Scene, ending: Ending) -> str:
    if ending.signal != signal.SIGKILL:
        return ""
    machine = surroundings.of_rank(scene, ending.rank)
    if machine.oom_kills >= 0:
        return "; no cgroup OOM kill"
    if isinstance(machine.kernel_events, Unread):
        return "; whether it was an OOM kill could not be read"
    return "; no OOM kill in the kernel log"


# --- explain -------------------------------------------------------------------------------------

FIND_SENDER = (
    "find who sent it: the OOM killer (`sudo dmesg -T | grep -i 'killed process'`), the "
    "scheduler's record, `journalctl -u systemd-oomd`, a clean-up script with a broad pattern"
)
SENDER_UNKNOWN = (
    "who sent it: the logs of kernel and scheduler are missing, and an OOM kill looks the same"
)
SHOW_KERNEL_LOG = "sudo dmesg -T | grep -iE 'killed process|oom'"


@FAULT.explain
def killed_by_signal(wreckage: Wreckage) -> Diagnosis | None:
    outside = {s.value for s in signal.Signals} - exits.CRASHES - exits.STOP_SIGNALS
    killed = blame.by_signal(wreckage, *outside)
    if not killed:
        return None
    known, first = blame.of(wreckage), killed[0]
    oom = wreckage.seen(kernel.OOM_KILL, kernel.OOM_INVOKED, launchers.SLURM_OOM)
    limit = [s for s in wreckage.seen(launchers.SLURM_CANCELLED) if s.fields.get("why")]
    others = known.others(first.rank)
    return FAULT.diagnosis(
        f"{blame.subject(first)} was killed by {phrases.signal_name(-first.code)} "
        f"from outside{_victims_in_words(others)}",
        confidence=0.3 if oom or limit else _confidence(killed, known.own),
        culprit=Culprit(rank=first.rank, host=first.host, pid=first.pid, what=_local_rank(first)),
        victims=others,
        evidence=[*map(blame.of_exit, killed[:3]), *blame.complaints(wreckage)[:2]],
        fix=FIND_SENDER,
        next=SHOW_KERNEL_LOG,
        ruled_out=blame.ruled_out(wreckage),
        unknown=() if oom else (SENDER_UNKNOWN,),
    )


def _confidence(killed: tuple[Exit, ...], own: tuple[Trouble, ...]) -> float:
    """Several at once look like a launcher or scheduler that cleaned up."""
    if own:
        return 0.3
    return 0.75 if len(killed) == 1 or killed[0].first else 0.6


def _local_rank(end: Exit) -> str:
    if end.rank is not None or end.local_rank is None:
        return ""
    return f"local rank {end.local_rank}"


def _victims_in_words(others: tuple[int, ...]) -> str:
    return f"; {text.ranks(others)} lost the connection or timed out" if others else ""


@FAULT.explain
def rank_vanished(wreckage: Wreckage) -> Diagnosis | None:
    """No message and no dump, although a running rank answers a request for dumps."""
    suspect = suspects.find(wreckage)
    if suspect is None or suspect.how not in ("mute", "unheard") or suspect.alive:
        return None
    several = len(suspect.ranks) > 1
    if several and not suspect.ended:
        return None
    mute, ranks = suspect.how == "mute", text.ranks(suspect.ranks)
    if suspect.ended:
        why = (
            "connections closed before any rank timed out, so one or more of them had exited"
            if several
            else "the connections to it closed, so its process had exited"
        ) + ": probably killed from outside, perhaps ended by itself (`os._exit`)"
    else:
        reply = "did not answer the request for dumps" if mute else "wrote nothing"
        why = (
            f"it {reply}: killed from outside, or stopped (no closed connection was reported; RDMA "
            "and shared memory report none)"
        )
    return FAULT.diagnosis(
        f"{ranks} vanished without a message, and {why}; "
        f"{text.ranks(suspect.victims)} only noticed",
        confidence=_sure_of_silence(suspect),
        seen=suspect.seen,
        culprit=suspects.culprit_on(wreckage, suspect),
        victims=suspect.victims,
        fix=FIND_SENDER,
        next=SHOW_KERNEL_LOG,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(
            ("which of them ended, and how" if several else "how it ended")
            + ": no launcher reported an exit code",
            *blame.unknown(wreckage, *suspect.ranks[:2]),
        ),
    )


def _sure_of_silence(suspect: Suspect) -> float:
    mute = suspect.how == "mute"
    if not suspect.ended:
        return 0.45 if mute else 0.3
    return 0.75 if mute and len(suspect.ranks) == 1 else 0.5


KNOWN_SENDER = FAULT.log_pattern(
    "known-sender",
    r"Container (?P<container>\S{1,100}) failed (?P<probe>liveness|startup) probe, will be "
    r"restarted"
    r"|got (?P<request>kill request): ",
    anchors=(" probe, will be restarted", "got kill request: "),
    example="Container main failed liveness probe, will be restarted",
    role=Role.CONFIRMATION,
)


@FAULT.explain
def sender_reported_it(wreckage: Wreckage) -> Diagnosis | None:
    """The kubelet, or torchft's lighthouse: the process may have been healthy."""
    seen = wreckage.seen(KNOWN_SENDER)
    if not seen:
        return None
    probe = sightings.field(seen, "probe")
    who = (
        f"the kubelet killed the container because its {probe} probe failed"
        if probe
        else "torchft's manager ended its process after a kill request from the lighthouse"
    )
    return FAULT.diagnosis(
        f"{who}; the processes in it were ended from outside",
        # A cluster's list of events is about other pods, too.
        confidence=0.5 if blame.of(wreckage).own or not wreckage.ranks else 0.8,
        seen=seen,
        culprit=Culprit(
            rank=seen[0].rank,
            host=seen[0].line.host,
            what=sightings.field(seen, "container") and "the kubelet",
        ),
        fix="give training containers no liveness probe, or one that a busy process passes"
        if probe
        else "find who pressed kill in the lighthouse's dashboard, or called its API",
        unknown=("whether the process hung before: its own log shows its last step",),
    )


@FAULT.explain
def ray_worker_vanished(wreckage: Wreckage) -> Diagnosis | None:
    """Ray's list of potential causes is advice; the vanished process is the observation."""
    vanished = sightings.saying(
        wreckage.seen(launchers.RAY_DIED),
        r"worker process has died|exit type: SYSTEM_ERROR|died unexpectedly|WorkerCrashedError",
    )
    if not vanished or blame.of(wreckage).explained or blame.of(wreckage).own:
        return None
    first = vanished[0].line
    said = sightings.field(vanished, "pid")
    pid = int(said) if said else first.pid
    listed = {s.fields["pid"]: int(s.fields["rank"]) for s in wreckage.seen(launchers.RAY_RANK)}
    rank = listed.get(str(pid), next(iter(sightings.writers(vanished)), None))
    return FAULT.diagnosis(
        f"{'a Ray worker' if rank is None else f'rank {rank}, a Ray worker,'} vanished without an "
        "exception: killed from outside (by the OOM killer or a "
        "person), or crashed in native code",
        confidence=0.5,
        seen=vanished,
        culprit=Culprit(rank=rank, host=first.host, pid=pid, what="a Ray worker"),
        fix=FIND_SENDER,
        next="ray logs cluster --errors; " + SHOW_KERNEL_LOG,
        ruled_out=blame.ruled_out(wreckage),
        unknown=(SENDER_UNKNOWN,),
    )


@FAULT.drill(quick=True)
def kill_a_rank(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"SIGKILL to rank {rehearsal.rank} {rehearsal.when}",
        act=SignalProcess(number=signal.SIGKILL),
        then=Then.RESTARTS,
    )
