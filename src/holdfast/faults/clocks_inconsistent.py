"""The job's clocks contradict each other.

What you see   Healthy ranks are ended by `watchdog got stuck for N seconds`; a hang is noticed only
               after days; the scheduler ends the job before any timeout could say
               what was wrong; the flight recorder's dump is cut off.
Why            A job has many clocks: the store's, the group's, NCCL's watchdog and its monitor, the
               framework's, the scheduler's. Each must be longer than the one it guards.
               DEEPSPEED_TIMEOUT counts minutes, while nearly everything else counts seconds or
               milliseconds. TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC (480 by default) is how long the
               watchdog may show no progress before the monitor ends the process; zero or a few
               seconds end healthy ranks.
How to be sure TORCH_CPP_LOG_LEVEL=INFO prints torch's values at the start (`HeartbeatMonitor
               environments`). The default group timeout is 10 minutes for NCCL and 30 for others.
Fix            Unset what you do not need. Give the group's timeout in code,
               init_process_group(timeout=timedelta(minutes=…)), and the scheduler more than that.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (HeartbeatMonitor)
               https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
               deepspeedai/DeepSpeed deepspeed/constants.py (minutes)
               https://slurm.schedmd.com/sbatch.html (SLURM_JOB_START_TIME, SLURM_JOB_END_TIME)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import wording
from holdfast.facts import MachineFacts, Setting, known
from holdfast.fault import Fault
from holdfast.model import Culprit, Diagnosis, Evidence, Finding
from holdfast.remains import clocks
from holdfast.remains.nouns import Sighting, Wreckage
from holdfast.remains.signature import Role
from holdfast.variables.values import torch_bool, torch_int, torch_setting

FAULT = Fault(code="HOLD510", slug="clocks-inconsistent")

HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
DUMP = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
HEARTBEAT_DEFAULT = 480
TINY = 10
"""seconds: one slow CUDA call or a busy machine holds the watchdog up that long"""
LIKELY_SECONDS = 600
"""of DEEPSPEED_TIMEOUT: as minutes ten hours, as seconds the usual ten minutes"""
GROUP_DEFAULT = 600
"""seconds, of NCCL groups since torch 2.2; the shortest of the usual defaults"""


@FAULT.foresee
def clocks_contradict(facts: MachineFacts) -> Finding | list[Finding]:
    known(facts.settings)
    checks = (_heartbeat(facts), _dump(facts), _deepspeed(facts), _scheduler(facts))
    findings = [finding for check in checks for finding in check]
    return findings or FAULT.ok("the clocks set by variables do not contradict each other")


def _seen(*settings: Setting) -> list[Evidence]:
    return [Evidence(quote=f"{s.name}={s.value}", source=s.origin) for s in settings]


def _monitored(facts: MachineFacts) -> bool:
    switch = torch_setting(facts, "TORCH_NCCL_ENABLE_MONITORING")
    return switch is None or torch_bool(switch.value) is not False


def _heartbeat(facts: MachineFacts) -> Iterator[Finding]:
    setting = torch_setting(facts, HEARTBEAT)
    seconds = torch_int(setting.value) if setting else None
    if setting is None or seconds is None or seconds >= TINY or not _monitored(facts):
        return
    what = "at once" if seconds <= 0 else f"after {seconds} s without progress"
    yield FAULT.warning(
        f"{HEARTBEAT}={setting.value} lets the monitor end healthy ranks",
        reason=f"the watchdog is taken for stuck {what}; the default is {HEARTBEAT_DEFAULT} s",
        evidence=_seen(setting),
        fix=f"`unset {HEARTBEAT}`; TORCH_NCCL_ENABLE_MONITORING=0 turns the monitor off",
    )


def _dump(facts: MachineFacts) -> Iterator[Finding]:
    setting = torch_setting(facts, DUMP)
    millis = torch_int(setting.value) if setting else None
    beat = torch_setting(facts, HEARTBEAT)
    limit = (torch_int(beat.value) if beat else None) or HEARTBEAT_DEFAULT
    if setting is None or millis is None or limit < TINY or not _monitored(facts):
        return
    if millis > limit * 1000:
        yield FAULT.note(
            f"{DUMP} allows {wording.span(millis / 1000)} for the recorder's dump, the heartbeat "
            f"only {wording.span(limit)}",
            reason="a watchdog that waits for the dump shows no heartbeat, so the monitor may end "
            "the process before the dump is written; this one counts milliseconds",
            evidence=_seen(setting, *([beat] if beat else [])),
            fix=f"`unset {DUMP}` (15 seconds), or raise {HEARTBEAT} above it",
        )


def _deepspeed(facts: MachineFacts) -> Iterator[Finding]:
    setting = torch_setting(facts, "DEEPSPEED_TIMEOUT")
    if setting is None:
        return
    try:
        minutes = int(setting.value)  # as deepspeed/constants.py does
    except ValueError:
        yield FAULT.warning(
            f"DEEPSPEED_TIMEOUT={setting.value} is no whole number: `import deepspeed` will fail",
            reason="DeepSpeed passes it to int() when it is imported; the unit is minutes",
            evidence=_seen(setting),
            fix="`export DEEPSPEED_TIMEOUT=30` for half an hour",
        )
        return
    if minutes >= LIKELY_SECONDS:
        yield FAULT.warning(
            f"DEEPSPEED_TIMEOUT={minutes} is {wording.span(minutes * 60)}: the unit is minutes",
            reason="a hang would be noticed only then; very likely seconds were meant",
            evidence=_seen(setting),
            fix=f"`export DEEPSPEED_TIMEOUT={minutes // 60}`, if {minutes} seconds were meant",
        )


def _scheduler(facts: MachineFacts) -> Iterator[Finding]:
    """Slurm's own start and end: the difference needs no clock of ours."""
    start, end = facts.setting("SLURM_JOB_START_TIME"), facts.setting("SLURM_JOB_END_TIME")
    if not (start and end and start.value.isdecimal() and end.value.isdecimal()):
        return
    seconds = int(end.value) - int(start.value)
    if 0 < seconds < GROUP_DEFAULT:
        yield FAULT.note(
            f"Slurm ends this job after {wording.span(seconds)}, before torch's default timeout",
            reason=f"a hang would end without a word about its cause: NCCL groups wait "
            f"{wording.span(GROUP_DEFAULT)}, others longer, unless the script gives a timeout",
            evidence=_seen(start, end),
            fix="ask for more time, or give init_process_group a shorter timeout",
        )


# --- in what is left of a job -------------------------------------------------------------------

ASKED = FAULT.wording(
    "asked",
    r"\bTIMEOUT\(ms\): (?P<ms>\d+)|\bddp_timeout['\"]?\s?[=:]\s?(?P<seconds>\d+)",
    anchors=("TIMEOUT(ms): ", "ddp_timeout"),
    example="[PG 0 Rank 2] ProcessGroupNCCL initialization options: size: 8, global rank: 2, "
    "TIMEOUT(ms): 5400000, USE_HIGH_PRIORITY_STREAM: 0",
    role=Role.CONTEXT,
)


@FAULT.recognise
def healthy_ranks_were_taken_for_stuck(wreckage: Wreckage) -> Diagnosis | None:
    """A monitor that waits a few seconds only ends whoever makes one slow call."""
    for one in wreckage.seen(clocks.HEARTBEAT_STUCK):
        seconds = int(one.fields.get("seconds", HEARTBEAT_DEFAULT))
        if seconds < 6 * TINY:
            return FAULT.diagnosis(
                f"torch's monitor took the watchdog for stuck after {seconds} s, and ended the "
                f"process; the default is {HEARTBEAT_DEFAULT} s, and one slow call takes longer "
                "than this",
                confidence=0.6,
                seen=(one,),
                culprit=Culprit(what=f"{HEARTBEAT}={seconds}"),
                fix=f"`unset {HEARTBEAT}`, or a value above the longest pause of a healthy step",
                next="env | grep HEARTBEAT",
                unknown=("whether the call would ever have returned",),
            )
    return None


@FAULT.recognise
def another_clock_ran_out_first(wreckage: Wreckage) -> Diagnosis | None:
    """A longer timeout was asked for, and a group that did not inherit it gave up on its own."""
    asked = [one for one in wreckage.seen(ASKED) if _seconds(one)]
    fired = [one for one in wreckage.seen(clocks.WATCHDOG) if "timeout_ms" in one.fields]
    if not asked or not fired:
        return None
    longest = max(asked, key=_seconds)
    shortest = min(fired, key=lambda one: int(one.fields["timeout_ms"]))
    seconds = int(shortest.fields["timeout_ms"]) / 1000
    if seconds >= _seconds(longest):
        return None
    return FAULT.diagnosis(
        f"a timeout of {wording.span(_seconds(longest))} was asked for, but the collective that "
        f"gave up had {wording.span(seconds)}: its group did not get the longer one",
        confidence=0.4,
        seen=(longest, shortest),
        culprit=Culprit(what=f"timeout of {wording.span(seconds)}"),
        fix="give the timeout to every group: new_group(timeout=…), device meshes and "
        "DeepSpeed's or the trainer's own setting do not take it from init_process_group",
        unknown=("whether the late rank would have come within the longer time",),
    )


def _seconds(one: Sighting) -> float:
    fields = one.fields
    return int(fields["ms"]) / 1000 if "ms" in fields else float(fields.get("seconds", 0))
