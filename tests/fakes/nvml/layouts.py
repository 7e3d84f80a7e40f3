"""The structures of nvml.h, and writing through the pointers that a caller hands over."""

from __future__ import annotations

import ctypes
from typing import Any

SUCCESS, INVALID_ARGUMENT, NOT_SUPPORTED, INSUFFICIENT_SIZE, VERSION_MISMATCH = 0, 2, 3, 7, 25
NOT_AVAILABLE = (1 << 64) - 1
"""NVML_VALUE_NOT_AVAILABLE"""


class PciInfo(ctypes.Structure):
    _fields_ = [
        ("busIdLegacy", ctypes.c_char * 16),
        ("domain", ctypes.c_uint),
        ("bus", ctypes.c_uint),
        ("device", ctypes.c_uint),
        ("pciDeviceId", ctypes.c_uint),
        ("pciSubSystemId", ctypes.c_uint),
        ("busId", ctypes.c_char * 32),
    ]


class ProcessInfo(ctypes.Structure):
    """nvmlProcessInfo_v2_t, which v3 has too."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("usedGpuMemory", ctypes.c_ulonglong),
        ("gpuInstanceId", ctypes.c_uint),
        ("computeInstanceId", ctypes.c_uint),
    ]


class FieldValue(ctypes.Structure):
    _fields_ = [
        ("fieldId", ctypes.c_uint),
        ("scopeId", ctypes.c_uint),
        ("timestamp", ctypes.c_longlong),
        ("latencyUsec", ctypes.c_longlong),
        ("valueType", ctypes.c_uint),
        ("nvmlReturn", ctypes.c_uint),
        ("value", ctypes.c_ulonglong),
    ]


class FabricInfo(ctypes.Structure):
    """nvmlGpuFabricInfo_t; v2 and v3 put a version before it and health after it."""

    _fields_ = [
        ("clusterUuid", ctypes.c_uint8 * 16),
        ("status", ctypes.c_uint),
        ("cliqueId", ctypes.c_uint),
        ("state", ctypes.c_uint),
    ]


def whole(number: Any) -> int:
    return int(getattr(number, "value", number))


def array(out: Any, kind: Any, length: int) -> Any:
    return ctypes.cast(out, ctypes.POINTER(kind * length))[0]


def put(out: Any, kind: Any, value: int | None) -> int:
    if value is None:
        return NOT_SUPPORTED
    ctypes.cast(out, ctypes.POINTER(kind))[0] = value
    return SUCCESS


def put_text(out: Any, size: Any, text: str) -> int:
    raw = text.encode(errors="surrogateescape") + b"\0"
    if len(raw) > whole(size):
        return INSUFFICIENT_SIZE
    ctypes.memmove(ctypes.cast(out, ctypes.c_void_p), raw, len(raw))
    return SUCCESS


def put_pci_info(out: Any, bus_id: str) -> int:
    domain, bus, rest = bus_id.split(":")
    info = ctypes.cast(out, ctypes.POINTER(PciInfo))[0]
    info.busId = bus_id.encode()
    info.busIdLegacy = f"{domain[-4:]}:{bus}:{rest}".encode()
    info.domain, info.bus, info.device = int(domain, 16), int(bus, 16), int(rest[:2], 16)
    return SUCCESS
