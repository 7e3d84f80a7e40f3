"""The processes that hold memory of a GPU, described as far as they can be seen from here."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from holdfast.analysis.machine import GpuHolder, Process, Unread
from holdfast.system import proc, process
from holdfast.system.nvidia.library import Library

NOT_TOLD = Unread(why="the driver does not list the processes on this GPU")


def read_holders(nvml: Library, gpu: Any, minor: int | None) -> tuple[GpuHolder, ...] | Unread:
    """Programs that compute, under MPS too, and programs that draw."""
    kinds = ("Compute", "MPSCompute", "Graphics")
    told = [nvml.newest(f"nvmlDeviceGet{kind}RunningProcesses", gpu) for kind in kinds]
    if all(answer is None for answer in told):
        return NOT_TOLD
    memory: dict[int, int | None] = {}
    for answer in told:
        for pid, used in _by_process(answer or ()).items():
            before = memory.get(pid)  # a process that computes and draws is in two lists
            memory[pid] = used if before is None else max(before, used or 0)
    return tuple(_describe(pid, used, minor) for pid, used in memory.items())


def _by_process(entries: Iterable[Any]) -> dict[int, int | None]:
    """A process has an entry for each part of the GPU (MIG) that it uses."""
    used: dict[int, int | None] = {}
    for entry in entries:
        before, more = used.get(entry.pid), entry.usedGpuMemory
        used[entry.pid] = before if more is None else (before or 0) + int(more)
    return used


def _describe(pid: int, memory: int | None, minor: int | None) -> GpuHolder:
    seen = process.describe(pid) if _is_the_drivers(pid, minor) else Unread(why="of another host")
    if not isinstance(seen, Process):
        return GpuHolder(pid=pid, memory=memory)
    return GpuHolder(pid=pid, memory=memory, command=seen.command, user=seen.user, age=seen.age)


def _is_the_drivers(pid: int, minor: int | None) -> bool:
    """The driver numbers processes as the machine does. In a container the same number belongs to
    another process, unless that one has this very GPU open."""
    if proc.shows_whole_machine():
        return True
    try:
        return f"/dev/nvidia{minor}" in proc.open_files(pid)
    except OSError:
        return False
