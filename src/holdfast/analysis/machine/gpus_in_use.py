"""May a test use these GPUs, or does another job run on them? Pure."""

from __future__ import annotations

from holdfast.analysis.machine.fact import CouldNotLook
from holdfast.analysis.machine.gpu import Gpu
from holdfast.analysis.machine.gpu_memory_held import HeldGpu, held
from holdfast.analysis.machine.machine import MachineFacts
from holdfast.analysis.machine.visible_gpus import gpus_here, used_by_ranks

A_CONTEXT = 256 << 20
"""bytes: less than any CUDA program holds, more than a desktop or a monitor does"""
BUSY = 50
"""per cent of the time: no idle GPU is, whatever draws a desktop on it"""
UNSEEN_SHARE = 0.05
"""of a GPU's memory that is taken by processes which are not visible here"""


def why_leave_alone(facts: MachineFacts) -> str:
    """Which other program a test on the GPUs of this job would disturb; '' when there is none, or
    nothing is known of them."""
    try:
        gpus, used = gpus_here(facts), used_by_ranks(facts)
    except CouldNotLook:
        return ""
    for gpu in gpus:
        if gpu.unread or (used is not None and gpu.index not in used):
            continue
        if _in_use(gpu, held(gpu)):
            return f"a test would disturb another program: {held(gpu).description}"
        if (gpu.busy or 0) >= BUSY:
            return f"a test would disturb another program: GPU {gpu.index} is {gpu.busy} % busy"
    return ""


def _in_use(gpu: Gpu, seen: HeldGpu) -> bool:
    if seen.holders:
        return any(h.memory is None or h.memory >= A_CONTEXT for h in seen.holders)
    return bool(gpu.memory_total) and seen.share >= UNSEEN_SHARE
