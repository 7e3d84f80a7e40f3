"""Timeouts that variables set, and how they contradict each other, in words for every face.

Each function returns None where there is nothing to say.
"""

from __future__ import annotations

from typing import TypedDict

from holdfast import text
from holdfast.analysis.variables.parsing import torch_int

HEARTBEAT = "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC"
DUMP = "TORCH_NCCL_WAIT_TIMEOUT_DUMP_MILSEC"
MONITORING = "TORCH_NCCL_ENABLE_MONITORING"
DEEPSPEED = "DEEPSPEED_TIMEOUT"
HEARTBEAT_DEFAULT = 480
TINY = 10
"""seconds: one slow CUDA call or a busy machine blocks the watchdog that long"""
LIKELY_SECONDS = 600
"""of DEEPSPEED_TIMEOUT: as minutes ten hours, as seconds the usual ten minutes"""
GROUP_DEFAULT = 600
"""seconds, of NCCL groups since torch 2.2; the shortest of the usual defaults"""


class Concern(TypedDict):
    """The words that the check and lint faces share."""

    summary: str
    reason: str
    fix: str


def heartbeat(value: str) -> Concern | None:
    seconds = torch_int(value)
    if seconds is None or seconds >= TINY:
        return None
    what = "at once" if seconds <= 0 else f"after {seconds} s without progress"
    return {
        "summary": f"{HEARTBEAT}={value} makes the monitor end healthy ranks",
        "reason": f"the watchdog is considered stuck {what}; the default is {HEARTBEAT_DEFAULT} s",
        "fix": f"`unset {HEARTBEAT}`; to switch the monitor off, set {MONITORING}=0",
    }


def dump(value: str, beat: str) -> Concern | None:
    """`beat`: the value of HEARTBEAT, '' where it is not set."""
    millis, limit = torch_int(value), torch_int(beat) or HEARTBEAT_DEFAULT
    if millis is None or not TINY <= limit < millis / 1000:
        return None
    return {
        "summary": f"{DUMP} allows {text.duration(millis / 1000)} for the recorder's dump, the "
        f"heartbeat only {text.duration(limit)}",
        "reason": "a watchdog that waits for the dump shows no heartbeat, so the monitor may end "
        "the process before the dump is written; the unit is milliseconds",
        "fix": f"`unset {DUMP}` (15 seconds), or raise {HEARTBEAT} above it",
    }


def deepspeed(value: str) -> Concern | None:
    try:
        minutes = int(value)  # as deepspeed/constants.py does
    except ValueError:
        return {
            "summary": f"{DEEPSPEED}={value} is not a whole number: `import deepspeed` will fail",
            "reason": "DeepSpeed passes it to int() when it is imported; the unit is minutes",
            "fix": f"`export {DEEPSPEED}=30` for half an hour",
        }
    if minutes < LIKELY_SECONDS:
        return None
    return {
        "summary": f"{DEEPSPEED}={minutes} is {text.duration(minutes * 60)}: the unit is minutes",
        "reason": "a hang would be noticed only after that; seconds were probably meant",
        "fix": f"`export {DEEPSPEED}={minutes // 60}`, if {minutes} seconds were meant",
    }


def scheduler(seconds: int) -> Concern | None:
    """`seconds`: after which the scheduler ends the job."""
    if not 0 < seconds < GROUP_DEFAULT:
        return None
    return {
        "summary": f"Slurm ends this job after {text.duration(seconds)}, before torch's default "
        "timeout",
        "reason": f"a hang would end without any report of its cause: NCCL groups wait "
        f"{text.duration(GROUP_DEFAULT)}, others longer, unless the script sets a timeout",
        "fix": "give the job more time, or give init_process_group a shorter timeout",
    }


def behind_the_scheduler(name: str, value: str, limit: int) -> Concern | None:
    """A timeout that has not expired when the scheduler ends the job after `limit` seconds."""
    number = torch_int(value)
    if number is None or name not in (HEARTBEAT, DEEPSPEED):
        return None
    seconds = number * (60 if name == DEEPSPEED else 1)
    if seconds < limit:
        return None
    return {
        "summary": f"{name}={value} is {text.duration(seconds)}, and Slurm ends this job after "
        f"{text.duration(limit)}",
        "reason": "this timeout never expires: a hang would end without any report of its cause",
        "fix": f"use a value well below {text.duration(limit)}, or give the job more time",
    }
