"""Ask NVIDIA's driver how busy each GPU is, where the package nvidia-ml-py is installed.

In a child with a deadline: when a GPU hangs, so may every question to its driver.
"""

from __future__ import annotations

import contextlib
import importlib.util
from typing import Any

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.system import deadline

SECONDS = 1.0
MISSING = Unread(why="nvidia-ml-py is not installed beside holdfast: pip install nvidia-ml-py")


def look(*, seconds: float = SECONDS) -> tuple[GpuLook, ...] | Unread:
    """Every GPU of this machine."""
    if importlib.util.find_spec("pynvml") is None:
        return MISSING
    answer = deadline.ask({"gpus": _ask}, seconds=seconds)["gpus"]
    if isinstance(answer, Unread):
        return answer
    return msgspec.msgpack.decode(answer, type=tuple[GpuLook, ...])


def _ask() -> bytes:
    import pynvml  # type: ignore[import-not-found,import-untyped,unused-ignore]  # noqa: PLC0415

    pynvml.nvmlInit()
    return msgspec.msgpack.encode(
        [_one(pynvml, index) for index in range(pynvml.nvmlDeviceGetCount())]
    )


def _one(nvml: Any, index: int) -> GpuLook:
    gpu = nvml.nvmlDeviceGetHandleByIndex(index)
    power = limit = 0.0
    pids: tuple[int, ...] = ()
    # Parts of a GPU (MIG) and virtual ones refuse some of it.
    with contextlib.suppress(nvml.NVMLError):
        power = nvml.nvmlDeviceGetPowerUsage(gpu) / 1e3
        limit = nvml.nvmlDeviceGetEnforcedPowerLimit(gpu) / 1e3
    with contextlib.suppress(nvml.NVMLError):
        pids = tuple(p.pid for p in nvml.nvmlDeviceGetComputeRunningProcesses(gpu))
    return GpuLook(
        index=index,
        uuid=nvml.nvmlDeviceGetUUID(gpu),
        busy=nvml.nvmlDeviceGetUtilizationRates(gpu).gpu,
        power=power,
        limit=limit,
        pids=pids,
    )
