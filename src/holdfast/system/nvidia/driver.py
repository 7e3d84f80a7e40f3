"""The driver as a whole, and each GPU in a process of its own: one that hangs is named, and the
others are read."""

from __future__ import annotations

import os
import re

import msgspec

from holdfast.analysis.machine import Gpu, NvidiaFacts, Unread
from holdfast.system import deadline, sysfs
from holdfast.system.nvidia.each_gpu import ask_each
from holdfast.system.nvidia.gpu import identify, read_gpu
from holdfast.system.nvidia.library import (
    LIBRARY_NOT_FOUND,
    MISSING,
    NOT_LOADED,
    WHY_GONE,
    GpuGone,
    Library,
    installed,
)
from holdfast.system.nvidia.library import version_of_bindings as bindings

NVIDIA, GPU_CLASSES = "0x10de", ("0x0300", "0x0302")
"""of PCI: vendor, and the classes of GPUs with and without a screen"""
_MODULE = re.compile(r"Kernel Module(?: for \S+)?\s+(\d[\d.]*)")


def read_driver(root: str = "/") -> NvidiaFacts | Unread:
    """Everything; at most until the deadline of the question that this answers."""
    module, is_open = _module(root)
    nodes, unbound = _device_nodes(root), _unbound_gpus(root)
    if not installed():
        return MISSING if nodes else NvidiaFacts(present=bool(unbound), unbound=unbound)
    nvml = Library()
    answer = deadline.ask(
        {"driver": lambda: _describe_driver(nvml)},
        seconds=deadline.time_left(deadline.DRIVER_SECONDS) / 2,
    )["driver"]
    if isinstance(answer, Unread):
        facts = NvidiaFacts(present=True, error=answer.why, error_code=-1, bindings=bindings())
        count = 0
    else:
        facts, count = msgspec.msgpack.decode(answer, type=tuple[NvidiaFacts, int])
    return msgspec.structs.replace(
        facts,
        present=nodes or unbound > 0 or facts.error_code not in (LIBRARY_NOT_FOUND, NOT_LOADED),
        module=module or facts.module,
        open_module=is_open,
        unbound=unbound,
        gpus=_every_gpu(nvml, count, root),
    )


# --- the driver ---------------------------------------------------------------------------------


def _describe_driver(nvml: Library) -> bytes:
    code, error = nvml.initialise()
    cuda = nvml.number("nvmlSystemGetCudaDriverVersion") if not error else None
    facts = NvidiaFacts(
        present=True,
        module=(nvml.ask("nvmlSystemGetDriverVersion") or "") if not error else "",
        # '13.580.95.05': CUDA's number, then the driver's. Answers without initialisation too.
        library=(nvml.ask("nvmlSystemGetNVMLVersion") or "").partition(".")[2],
        error=error,
        error_code=code,
        cuda=f"{cuda // 1000}.{cuda % 1000 // 10}" if cuda else "",
        bindings=bindings(),
    )
    count = nvml.number("nvmlDeviceGetCount") if not error else None
    return msgspec.msgpack.encode((facts, count or 0))


def _module(root: str) -> tuple[str, bool | None]:
    """Version of the loaded kernel module, and whether it is the open one."""
    text = sysfs.text(root, "proc/driver/nvidia/version")
    version = _MODULE.search(text)
    if version is None:
        return sysfs.text(root, "sys/module/nvidia/version"), None
    return version[1], "Open Kernel Module" in text


def _device_nodes(root: str) -> bool:
    return any(re.fullmatch(r"nvidia(\d+|ctl)", name) for name in sysfs.listed(root, "dev"))


def _unbound_gpus(root: str) -> int:
    """Cards that wait for a driver: after an upgrade of the kernel its module may be missing. One
    that another driver has (nouveau, or vfio for a virtual machine) is used on purpose."""
    folder = os.path.join(root, "sys/bus/pci/devices")
    return sum(
        sysfs.text(folder, name, "vendor") == NVIDIA
        and sysfs.text(folder, name, "class").startswith(GPU_CLASSES)
        and not os.path.exists(os.path.join(folder, name, "driver"))
        for name in sysfs.listed(folder)
    )


# --- its GPUs -----------------------------------------------------------------------------------


def _every_gpu(nvml: Library, count: int, root: str) -> tuple[Gpu, ...]:
    left = deadline.time_left(deadline.DRIVER_SECONDS)
    answers = ask_each(nvml, range(count), _read, seconds=left)
    gpus = tuple(_answered(index, answer) for index, answer in answers.items())
    places = _bus_ids(root)
    if len(places) != count:
        return gpus
    # The driver counts GPUs in the order of their places: one that is silent has one too.
    return tuple(
        msgspec.structs.replace(gpu, bus_id=gpu.bus_id or place)
        for gpu, place in zip(gpus, places, strict=True)
    )


def _answered(index: int, answer: bytes | Unread) -> Gpu:
    if not isinstance(answer, Unread):
        return msgspec.msgpack.decode(answer, type=Gpu)
    kind = "no answer" if answer.timed_out else "error"
    return Gpu(index=index, unread=answer.why, unread_kind=kind)


def _read(nvml: Library, index: int) -> bytes:
    known = Gpu(index=index)
    try:
        handle = nvml.handle(index)
        known = identify(nvml, handle, index)
        return msgspec.msgpack.encode(read_gpu(nvml, handle, known))
    except GpuGone as gone:
        kind = WHY_GONE.get(gone.code, "error")
        return msgspec.msgpack.encode(
            msgspec.structs.replace(known, unread=gone.words, unread_kind=kind)
        )


def _bus_ids(root: str) -> list[str]:
    """Where the driver has GPUs, by the names of its folders alone: reading them asks the GPU."""
    return sysfs.listed(root, "proc/driver/nvidia/gpus")
