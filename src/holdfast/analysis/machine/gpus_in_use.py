"""May a test use these GPUs, or does another job run on them? Pure."""

from __future__ import annotations

from holdfast.analysis.machine.fact import CouldNotLook
from holdfast.analysis.machine.gpu import Gpu
from holdfast.analysis.machine.gpu_memory_held import HeldGpu, held
from holdfast.analysis.machine.machine import MachineFacts
from holdfast.analysis.machine.visible_gpus import gpus_here, used_by_ranks

A_CONTEXT = 256 << 20
"""bytes: less than any CUDA program holds, more than a desktop or a monitor does"""
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
        if (used is None or gpu.index in used) and not gpu.unread and _in_use(gpu, held(gpu)):
            return f"another program uses it, which a test would disturb: {held(gpu).description}"
    return ""


def _in_use(gpu: Gpu, seen: HeldGpu) -> bool:
    if seen.holders:
        return any(h.memory is None or h.memory >= A_CONTEXT for h in seen.holders)
    return bool(gpu.memory_total) and seen.share >= UNSEEN_SHARE
