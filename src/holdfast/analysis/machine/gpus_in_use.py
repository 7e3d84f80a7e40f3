"""Are GPUs free to be tried, or does another job run on them? Pure.

A look that was not asked for needs certainty (`why_not_to_try`); the smoke test, which a user
typed, gives way to programs that compute, and not to a desktop (`why_leave_alone`).
"""

from __future__ import annotations

from holdfast.analysis.machine.fact import CouldNotLook, Unread
from holdfast.analysis.machine.gpu import Gpu
from holdfast.analysis.machine.gpu_memory_held import HeldGpu, held
from holdfast.analysis.machine.machine import MachineFacts
from holdfast.analysis.machine.visible_gpus import gpus_here, used_by_ranks

MIB = 1 << 20
LEAST_MEMORY = 64 * MIB
"""above it a program is there, though a container may hide its process: the smallest CUDA context
takes more"""
LEAST_WITH_RESERVE = 1024 * MIB
"""the same where the driver counts its own reserve as used: half a GiB on large cards"""
A_CONTEXT = 256 * MIB
"""bytes: less than any CUDA program holds, more than a desktop or a monitor does"""
BUSY = 50
"""per cent of the time: no idle GPU is, whatever draws a desktop on it"""
UNSEEN_SHARE = 0.05
"""of a GPU's memory that is taken by processes which are not visible here"""


def why_not_to_try(gpu: Gpu | None) -> str:
    """Why `check` may open no context there by itself now; '' when no other program would notice.
    What is not known is taken for use."""
    if gpu is None or isinstance(gpu.holders, Unread) or gpu.memory_used is None or gpu.unread:
        return "it is not known whether another program uses this GPU"
    least = LEAST_WITH_RESERVE if gpu.memory_reserved is None else LEAST_MEMORY
    reasons = {
        "this GPU is divided into MIG instances": gpu.mig,
        "another program uses this GPU": gpu.holders,
        "another program holds memory of this GPU": gpu.memory_used - (gpu.memory_reserved or 0)
        > least,
        "this GPU is busy": gpu.busy,
        # A job that starts during even a short look would be refused.
        "the compute mode of this GPU admits one program only": gpu.compute_mode != "default",
    }
    return next((reason for reason, holds in reasons.items() if holds), "")


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
