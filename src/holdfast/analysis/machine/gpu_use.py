"""Is a GPU free to be tried, without getting in the way of anybody's job?"""

from __future__ import annotations

from holdfast.analysis.machine.fact import Unread
from holdfast.analysis.machine.gpu import Gpu

MIB = 1 << 20
LEAST_MEMORY = 64 * MIB
"""above it a program is there, though a container may hide its process: the smallest CUDA context
takes more"""
LEAST_WITH_RESERVE = 1024 * MIB
"""the same where the driver counts its own reserve as used: half a GiB on large cards"""


def why_not_to_try(gpu: Gpu | None) -> str:
    """Why no context may be opened there now; '' when no other program would notice."""
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
