"""How far a GPU's registration with the NVLink fabric has come, by the newest call there is.

The layouts are those of nvml.h; the bindings' own classes came one by one with their versions,
and versions of 2024 have a wrong width for the health fields (0x11 for two bits).
"""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

from holdfast.analysis.machine import GpuFabric
from holdfast.system.nvidia.library import Library

STATES = {0: "not supported", 1: "not started", 2: "in progress", 3: "completed"}
COMPLETED = 3
SUMMARIES = {1: "healthy", 2: "unhealthy", 3: "limited capacity"}

HEALTH = {0: "degraded bandwidth", 2: "route recovery", 4: "route unhealthy", 6: "access timeout"}
"""shift of each field of two bits: 0 not supported, 1 fault, 2 healthy"""
FAULT = 1
_CONFIGURATION_SHIFT, _CONFIGURATION_WIDTH = 8, 0xF
CONFIGURATION = {
    2: "incorrect system GUID",
    3: "incorrect chassis serial number",
    4: "no partition",
    5: "insufficient NVLinks",
    6: "incompatible GPU firmware",
    7: "invalid location",
    8: "invalid GPU state",
}
"""of the field of four bits: 0 not supported, 1 none of these"""

_OLDEST: list[tuple[str, Any]] = [
    ("clusterUuid", ctypes.c_uint8 * 16),
    ("status", ctypes.c_uint),
    ("cliqueId", ctypes.c_uint32),
    ("state", ctypes.c_uint),
]


class FabricInfoV1(ctypes.Structure):
    _fields_ = _OLDEST


class FabricInfoV2(ctypes.Structure):
    _fields_ = [("version", ctypes.c_uint), *_OLDEST, ("healthMask", ctypes.c_uint32)]


class FabricInfoV3(ctypes.Structure):
    _fields_ = [*FabricInfoV2._fields_, ("healthSummary", ctypes.c_uint8)]


def read_fabric_info(nvml: Library, gpu: Any) -> GpuFabric | None:
    """None where neither driver nor bindings have any such call."""
    for layout, number in ((FabricInfoV3, 3), (FabricInfoV2, 2)):
        info = layout(version=ctypes.sizeof(layout) | number << 24)
        if nvml.ask("nvmlDeviceGetGpuFabricInfoV", gpu, ctypes.byref(info)) is not None:
            return describe(info)
    oldest = FabricInfoV1()
    if nvml.ask("nvmlDeviceGetGpuFabricInfo", gpu, ctypes.byref(oldest)) is not None:
        return describe(oldest)
    return None


def describe(info: Any) -> GpuFabric:
    completed = info.state == COMPLETED
    mask = getattr(info, "healthMask", None)
    cluster = bytes(info.clusterUuid)
    return GpuFabric(
        state=STATES.get(info.state, f"unknown ({info.state})"),
        # Before it is completed the status has no meaning.
        status=_status(info.status) if completed else "",
        clique=info.cliqueId if completed else None,
        cluster=str(uuid.UUID(bytes=cluster)) if any(cluster) else "",
        unhealthy=tuple(unhealthy(mask)) if mask is not None and completed else (),
        health_mask=mask,
        summary=SUMMARIES.get(getattr(info, "healthSummary", 0), ""),
    )


def unhealthy(mask: int) -> list[str]:
    """The fields that say fault."""
    found = [name for shift, name in HEALTH.items() if mask >> shift & 0x3 == FAULT]
    wrong = CONFIGURATION.get(mask >> _CONFIGURATION_SHIFT & _CONFIGURATION_WIDTH)
    return [*found, wrong] if wrong else found


def _status(code: int) -> str:
    """A return value of NVML, by its name in nvml.h."""
    return "success" if code == 0 else STATUS_NAMES.get(code, f"error {code}")


STATUS_NAMES = {
    1: "uninitialized",
    2: "invalid argument",
    3: "not supported",
    4: "no permission",
    6: "not found",
    10: "timeout",
    15: "GPU is lost",
    16: "reset required",
    19: "in use",
    23: "insufficient resources",
    27: "not ready",
    29: "invalid state",
    999: "unknown error",
}
