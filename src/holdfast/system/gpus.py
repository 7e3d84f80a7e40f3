"""How busy each GPU is while a job runs; by NVML, in children with a deadline."""

from __future__ import annotations

import os
from collections.abc import Collection

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.gpu import GpuLook
from holdfast.system import deadline
from holdfast.system.nvidia.bus_id import short_bus_id
from holdfast.system.nvidia.each_gpu import ask_each
from holdfast.system.nvidia.library import MISSING, GpuGone, Library, installed

SECONDS = 1.0
_UNCORRECTED, _SINCE_LOADED = 1, 0


def has_driver() -> bool:
    """Whether there is anything to ask."""
    return os.path.exists("/dev/nvidiactl")


def look(
    *, seconds: float = SECONDS, without: Collection[int] = ()
) -> tuple[GpuLook, ...] | Unread:
    """Every GPU of this machine, but those of these indexes."""
    if not installed():
        return MISSING
    nvml = Library()
    counted = deadline.ask({"count": lambda: _count(nvml)}, seconds=seconds / 2)["count"]
    if isinstance(counted, Unread):
        return counted
    wanted = [index for index in range(int(counted)) if index not in without]
    answers = ask_each(nvml, wanted, _look, seconds=seconds)
    looks = (_answered(index, answer) for index, answer in answers.items())
    return tuple(seen for seen in looks if seen)


def _count(nvml: Library) -> bytes:
    code, error = nvml.initialise()
    if code:
        raise OSError(error)
    return str(nvml.number("nvmlDeviceGetCount") or 0).encode()


def _answered(index: int, answer: bytes | Unread) -> GpuLook | None:
    if isinstance(answer, Unread):
        return GpuLook(index=index, uuid="", busy=None, power=0.0, limit=0.0, silent=answer.why)
    return msgspec.msgpack.decode(answer, type=GpuLook | None)


def _look(nvml: Library, index: int) -> bytes:
    seen: GpuLook | None = None
    try:
        seen = _ask(nvml, index)
    except GpuGone as gone:
        if gone.is_lost:  # else it is another job's, which this user may not ask for
            seen = GpuLook(index=index, uuid="", busy=None, power=0.0, limit=0.0, lost=gone.words)
    return msgspec.msgpack.encode(seen)


def _ask(nvml: Library, index: int) -> GpuLook:
    """Parts of a GPU (MIG) and virtual ones refuse some of it."""
    gpu = nvml.handle(index)
    memory, bus = nvml.ask("nvmlDeviceGetMemoryInfo", gpu), nvml.ask("nvmlDeviceGetPciInfo", gpu)
    busy = nvml.ask("nvmlDeviceGetUtilizationRates", gpu)
    running = nvml.newest("nvmlDeviceGetComputeRunningProcesses", gpu)
    return GpuLook(
        index=index,
        uuid=nvml.ask("nvmlDeviceGetUUID", gpu) or "",
        busy=int(busy.gpu) if busy else None,
        power=(nvml.number("nvmlDeviceGetPowerUsage", gpu) or 0) / 1e3,
        limit=(nvml.number("nvmlDeviceGetEnforcedPowerLimit", gpu) or 0) / 1e3,
        pids=tuple(process.pid for process in running or ()),
        bus_id=short_bus_id(bus.busId) if bus else "",
        memory=int(memory.used) if memory else 0,
        memory_total=int(memory.total) if memory else 0,
        uncorrected=nvml.number("nvmlDeviceGetTotalEccErrors", gpu, _UNCORRECTED, _SINCE_LOADED),
    )
