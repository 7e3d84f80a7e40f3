"""Ask NVIDIA's driver how busy each GPU is, where the package nvidia-ml-py is installed.

In a child with a deadline: when a GPU hangs, so may every question to its driver.
"""

from __future__ import annotations

import contextlib
import importlib.util
import os
from typing import Any

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.system import deadline

SECONDS = 1.0
MISSING = Unread(why="nvidia-ml-py is not installed beside holdfast: pip install nvidia-ml-py")


def has_driver() -> bool:
    """Whether there is anything to ask."""
    return os.path.exists("/dev/nvidiactl")


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
    """A GPU that the driver lost is an answer; parts of one (MIG) and virtual ones refuse some."""
    try:
        gpu = nvml.nvmlDeviceGetHandleByIndex(index)
        uuid, busy = nvml.nvmlDeviceGetUUID(gpu), nvml.nvmlDeviceGetUtilizationRates(gpu).gpu
    except nvml.NVMLError as problem:
        if "lost" not in str(problem).lower():
            raise
        return GpuLook(index=index, uuid="", busy=0, power=0.0, limit=0.0, lost=str(problem))

    def asked(call: str, *more: Any) -> Any:
        with contextlib.suppress(nvml.NVMLError, AttributeError):
            return getattr(nvml, call)(gpu, *more)
        return None

    memory, bus = asked("nvmlDeviceGetMemoryInfo"), asked("nvmlDeviceGetPciInfo")
    return GpuLook(
        index=index,
        uuid=uuid,
        busy=busy,
        power=(asked("nvmlDeviceGetPowerUsage") or 0) / 1e3,
        limit=(asked("nvmlDeviceGetEnforcedPowerLimit") or 0) / 1e3,
        pids=tuple(p.pid for p in asked("nvmlDeviceGetComputeRunningProcesses") or ()),
        bus_id=_text(bus.busId) if bus else "",
        memory=memory.used if memory else 0,
        memory_total=memory.total if memory else 0,
        uncorrected=asked(
            "nvmlDeviceGetTotalEccErrors",
            nvml.NVML_MEMORY_ERROR_TYPE_UNCORRECTED,
            nvml.NVML_VOLATILE_ECC,
        ),
    )


def _text(name: bytes | str) -> str:
    return name.decode() if isinstance(name, bytes) else name
