"""The job's timeouts contradict each other.

What you see   Healthy ranks are ended with `watchdog got stuck for N seconds`; a hang is noticed
               only after days; the scheduler ends the job before any timeout could report what was
               wrong; the flight recorder's dump is cut off.
Why            A job has many timeouts: the store's, the group's, NCCL's watchdog and its monitor,
               the framework's, the scheduler's. Each must be longer than the one it guards.
               DEEPSPEED_TIMEOUT is in minutes, while nearly all others are in seconds or
               milliseconds. TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC (480 by default) is how long the
               watchdog may show no progress before the monitor ends the process; zero or a few
               seconds end healthy ranks. NCCL groups since torch 2.15 have no such monitor, unless
               TORCH_DIST_USE_NCCL2=0.
How to be sure TORCH_CPP_LOG_LEVEL=INFO prints torch's values at the start (`HeartbeatMonitor
               environments`). The default group timeout is 10 minutes for NCCL and 30 for others.
Fix            Unset what you do not need. Set the group's timeout in code,
               init_process_group(timeout=timedelta(minutes=…)), and give the scheduler more time
               than that.
Known limits   The check sees timeouts set by variables; `holdfast env -- COMMAND` adds those of the
               command line and the script. Timeouts inside libraries and switches are not known.
Sources        pytorch/pytorch torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp (HeartbeatMonitor)
               https://docs.pytorch.org/docs/stable/torch_nccl_environment_variables.html
               deepspeedai/DeepSpeed deepspeed/constants.py (minutes)
               https://slurm.schedmd.com/sbatch.html (SLURM_JOB_START_TIME, SLURM_JOB_END_TIME)
"""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import text
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, Setting, Unread, known
from holdfast.analysis.source.collectives import group_timeouts
from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Launch, Source
from holdfast.analysis.variables import nccl_groups
from holdfast.analysis.variables import timeouts as timeout_words
from holdfast.analysis.variables.parsing import torch_bool, torch_setting
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD510",
    slug="clocks-inconsistent",
    related=("slow-rank-timeout", "async-handling-off", "timeout-keyword"),
)

STARTERS = ("torchrun", "torch.distributed.launch", "deepspeed", "accelerate")


@FAULT.check(needs=("settings", "software"))
def timeouts_contradict(facts: MachineFacts) -> Finding | list[Finding]:
    known(facts.settings)
    findings = [*_torch(facts), *_deepspeed(facts), *_scheduler(facts)]
    return findings or FAULT.ok("the timeouts set by variables are consistent")


def _seen(*settings: Setting | None) -> list[Evidence]:
    return [s.evidence for s in settings if s]


def _torch(facts: MachineFacts) -> Iterator[Finding]:
    switch = torch_setting(facts, timeout_words.MONITORING)
    if switch is not None and torch_bool(switch.value) is False:
        return
    newer = torch_setting(facts, nccl_groups.SWITCH)
    version = "" if isinstance(facts.software, Unread) else facts.software.torch
    if nccl_groups.are_newer(version, newer.value if newer else ""):
        return  # nothing monitors their watchdog
    beat, dump = (torch_setting(facts, n) for n in (timeout_words.HEARTBEAT, timeout_words.DUMP))
    if beat and (words := timeout_words.heartbeat(beat.value)):
        yield FAULT.warning(**words, evidence=_seen(beat))
    if dump and (words := timeout_words.dump(dump.value, beat.value if beat else "")):
        yield FAULT.note(**words, evidence=_seen(dump, beat))


def _deepspeed(facts: MachineFacts) -> Iterator[Finding]:
    setting = torch_setting(facts, timeout_words.DEEPSPEED)
    if setting and (words := timeout_words.deepspeed(setting.value)):
        yield FAULT.warning(**words, evidence=_seen(setting))


def _scheduler(facts: MachineFacts) -> Iterator[Finding]:
    """Slurm's own start and end times, so no local time is needed."""
    start, end = facts.setting("SLURM_JOB_START_TIME"), facts.setting("SLURM_JOB_END_TIME")
    if not (start and end and start.value.isdecimal() and end.value.isdecimal()):
        return
    if words := timeout_words.scheduler(int(end.value) - int(start.value)):
        yield FAULT.note(**words, evidence=_seen(start, end))


# --- in what is left of a job -------------------------------------------------------------------

ASKED = FAULT.log_pattern(
    "asked",
    r"\bTIMEOUT\(ms\): (?P<ms>\d+)|\bddp_timeout['\"]?\s?[=:]\s?(?P<seconds>\d+)",
    anchors=("TIMEOUT(ms): ", "ddp_timeout"),
    example="[PG 0 Rank 2] ProcessGroupNCCL initialization options: size: 8, global rank: 2, "
    "TIMEOUT(ms): 5400000, USE_HIGH_PRIORITY_STREAM: 0",
    role=Role.CONTEXT,
)


@FAULT.explain
def healthy_rank_was_ended_as_stuck(wreckage: Wreckage) -> Diagnosis | None:
    """A monitor that waits only a few seconds ends a rank for one slow call."""
    for one in wreckage.seen(watchdog.HEARTBEAT_STUCK):
        seconds = int(one.fields.get("seconds", timeout_words.HEARTBEAT_DEFAULT))
        if seconds < 6 * timeout_words.TINY:
            return FAULT.diagnosis(
                f"torch's monitor considered the watchdog stuck after {seconds} s and ended the "
                f"process; the default is {timeout_words.HEARTBEAT_DEFAULT} s, and one slow call "
                f"can take longer than {seconds} s",
                confidence=0.6,
                seen=(one,),
                culprit=Culprit(what=f"{timeout_words.HEARTBEAT}={seconds}"),
                fix=f"`unset {timeout_words.HEARTBEAT}`, or set it above the longest pause of a "
                "healthy step",
                next="env | grep HEARTBEAT",
                unknown=("whether the call would have returned",),
            )
    return None


@FAULT.explain
def shorter_timeout_ran_out_first(wreckage: Wreckage) -> Diagnosis | None:
    """A longer timeout was set, and a group that did not inherit it used its own."""
    asked = [one for one in wreckage.seen(ASKED) if _seconds(one)]
    fired = [one for one in wreckage.seen(watchdog.WATCHDOG) if "timeout_ms" in one.fields]
    if not asked or not fired:
        return None
    longest = max(asked, key=_seconds)
    shortest = min(fired, key=lambda one: int(one.fields["timeout_ms"]))
    seconds = int(shortest.fields["timeout_ms"]) / 1000
    if seconds >= _seconds(longest):
        return None
    return FAULT.diagnosis(
        f"a timeout of {text.duration(_seconds(longest))} was set, but the collective that timed "
        f"out had {text.duration(seconds)}: its group did not inherit the longer one",
        confidence=0.4,
        seen=(longest, shortest),
        culprit=Culprit(what=f"timeout of {text.duration(seconds)}"),
        fix="set the timeout for every group: new_group(timeout=…), device meshes and the settings "
        "of DeepSpeed or the trainer do not inherit it from init_process_group",
        unknown=("whether the late rank would have arrived within the longer timeout",),
    )


def _seconds(one: Sighting) -> float:
    fields = one.fields
    return int(fields["ms"]) / 1000 if "ms" in fields else float(fields.get("seconds", 0))


# --- in what a user wrote -----------------------------------------------------------------------


@FAULT.lint
def written_timeouts_contradict(source: Source) -> Iterator[Finding]:
    switch, beat = source.setting(timeout_words.MONITORING), source.setting(timeout_words.HEARTBEAT)
    newer = source.setting(nccl_groups.SWITCH)
    monitored = switch is None or torch_bool(switch.value) is not False
    if nccl_groups.are_newer(source.here.torch, newer.value if newer else ""):
        monitored = False
    limit = beat.value if beat and beat.known else ""
    for one in source.settings:
        if not (one.known and one.exported) or one.by == "unset":
            continue
        words, say = None, FAULT.warning
        if one.name == timeout_words.HEARTBEAT and monitored:
            words = timeout_words.heartbeat(one.value)
        elif one.name == timeout_words.DUMP and monitored:
            words, say = timeout_words.dump(one.value, limit), FAULT.note
        elif one.name == timeout_words.DEEPSPEED:
            words = timeout_words.deepspeed(one.value)
        if words is not None:
            yield say(**words, at=one.place)


@FAULT.lint_python
def group_does_not_inherit_the_timeout(program: Program, _: Source) -> Iterator[Finding]:
    own = group_timeouts.custom_timeout(program)
    if own is None:
        return
    for left in group_timeouts.groups_without_timeout(program):
        if own.seconds is not None and own.seconds == left.default:
            continue
        asked = "its own" if own.seconds is None else text.duration(own.seconds)
        usual = (
            f"a timeout of {text.duration(left.default)}"
            if left.default
            else "its backend's default timeout"
        )
        longest = left.default or max(group_timeouts.DEFAULTS.values())
        say = FAULT.warning if own.seconds and own.seconds > longest else FAULT.note
        mesh = "mesh" in left.call.method
        yield say(
            f"the group of {left.call.written} has {usual}, not that of init_process_group",
            reason=f"the timeout given there ({asked}) applies to the default group; other groups "
            "do not inherit it (10 minutes for NCCL, 30 for others, unless set)",
            fix="create the groups with `dist.new_group(ranks, timeout=…)` and "
            "DeviceMesh.from_group, or set the options in `backend_override=`"
            if mesh
            else f"use `{left.call.written}(…, timeout=…)` with the same value",
            at=program.place(left.call.node),
        )


@FAULT.lint
def scheduler_ends_the_job_before_the_timeout(source: Source) -> Iterator[Finding]:
    program = source.program
    own = group_timeouts.custom_timeout(program) if program else None
    limits = [s for launch in source.started_by if (s := _limit(launch)) is not None]
    if program and own and own.seconds and limits and own.seconds >= min(limits):
        yield FAULT.warning(
            f"Slurm ends this job after {text.duration(min(limits))}, before this timeout of "
            f"{text.duration(own.seconds)}",
            reason="a hang would end without any report of its cause",
            fix="set a timeout well below the job's --time, or give the job more time",
            at=program.place(own.value),
        )
    starts = any(launch.kind in STARTERS for launch in source.launches)
    for launch in source.launches if starts else ():
        seconds, flag = _limit(launch), launch.flag("time")
        if flag and seconds and (words := timeout_words.scheduler(seconds)):
            yield FAULT.note(**words, at=flag.place)


@FAULT.lint
def timeout_is_longer_than_the_job(source: Source) -> Iterator[Finding]:
    limits = [s for launch in source.launches if (s := _limit(launch)) is not None]
    for one in source.settings if limits else ():
        if one.known and one.exported and one.by != "unset":
            words = timeout_words.behind_the_scheduler(one.name, one.value, min(limits))
            if words is not None:
                yield FAULT.note(**words, at=one.place)


def _limit(launch: Launch) -> int | None:
    flag = launch.flag("time") if launch.kind in ("sbatch", "srun", "salloc") else None
    return group_timeouts.slurm_seconds(flag.value) if flag is not None and flag.known else None
