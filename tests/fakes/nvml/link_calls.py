"""The calls of NVML about a GPU's fields, its NVLinks and their fabric."""

from __future__ import annotations

import ctypes
import uuid
from typing import Any

from tests.fakes.nvml.layouts import (
    INVALID_ARGUMENT,
    NOT_AVAILABLE,
    NOT_SUPPORTED,
    SUCCESS,
    VERSION_MISMATCH,
    FabricInfo,
    FieldValue,
    array,
    put,
    put_pci_info,
    whole,
)
from tests.fakes.nvml.session import Refused, Session, answers
from tests.fakes.nvml.state import INT, UINT, ULL, FakeGpu, FakeLink


@answers("nvmlDeviceGetNvLinkState")
def nv_link_state(session: Session, gpu: FakeGpu, link: Any, out: Any) -> int:
    return put(out, ctypes.c_uint, int(_link(gpu, link).active))


@answers("nvmlDeviceGetNvLinkRemoteDeviceType")
def nv_link_remote_device_type(session: Session, gpu: FakeGpu, link: Any, out: Any) -> int:
    return put(out, ctypes.c_uint, _link(gpu, link).remote_type)


@answers("nvmlDeviceGetNvLinkRemotePciInfo_v2")
def nv_link_remote_pci_info_v2(session: Session, gpu: FakeGpu, link: Any, out: Any) -> int:
    return put_pci_info(out, _link(gpu, link).remote_bus_id)


@answers("nvmlDeviceGetNvLinkErrorCounter")
def nv_link_error_counter(session: Session, gpu: FakeGpu, link: Any, counter: Any, out: Any) -> int:
    found, number = _link(gpu, link), whole(counter)
    if found.errors is None:
        return NOT_SUPPORTED
    grown = session.grown(gpu, whole(link), number)
    return put(out, ctypes.c_ulonglong, found.errors[number] + grown)


@answers("nvmlDeviceGetFieldValues")
def field_values(session: Session, gpu: FakeGpu, count: Any, out: Any) -> int:
    values = ctypes.cast(out, ctypes.POINTER(FieldValue))
    for place in range(whole(count)):
        value = values[place]
        kind, number = gpu.fields.get(value.fieldId, (0, None))
        if number is None and value.scopeId < len(gpu.links):
            number = gpu.links[value.scopeId].fields.get(value.fieldId)
            if number is not None:
                kind = ULL
                number += session.grown(gpu, value.scopeId, value.fieldId)
        value.nvmlReturn = NOT_SUPPORTED if number is None else SUCCESS
        value.valueType = kind
        value.value = (number or 0) & (0xFFFFFFFF if kind in (UINT, INT) else NOT_AVAILABLE)
    return SUCCESS


@answers("nvmlDeviceGetGpuFabricInfo")
def gpu_fabric_info(session: Session, gpu: FakeGpu, out: Any) -> int:
    return _fabric(gpu, ctypes.addressof(ctypes.cast(out, ctypes.POINTER(FabricInfo))[0]))


@answers("nvmlDeviceGetGpuFabricInfoV")
def gpu_fabric_info_v(session: Session, gpu: FakeGpu, out: Any) -> int:
    version = array(out, ctypes.c_uint, 1)
    known = {0x02000024: 2, 0x03000028: 3}.get(version[0], 99)
    if known > session.driver.newest_fabric:
        return VERSION_MISMATCH
    start = ctypes.addressof(version)
    code = _fabric(gpu, start + 4)
    if code == SUCCESS and gpu.fabric is not None:
        ctypes.c_uint.from_address(start + 32).value = gpu.fabric.health_mask
        if known == 3:
            ctypes.c_uint8.from_address(start + 36).value = gpu.fabric.summary
    return code


def _fabric(gpu: FakeGpu, address: int) -> int:
    if gpu.fabric is None:
        return NOT_SUPPORTED
    info = FabricInfo.from_address(address)
    info.clusterUuid[:] = uuid.UUID(gpu.fabric.cluster).bytes
    info.status, info.cliqueId = gpu.fabric.status, gpu.fabric.clique
    info.state = gpu.fabric.state
    return SUCCESS


def _link(gpu: FakeGpu, link: Any) -> FakeLink:
    if not gpu.links:
        raise Refused(NOT_SUPPORTED)
    if whole(link) >= len(gpu.links):
        raise Refused(INVALID_ARGUMENT)
    return gpu.links[whole(link)]
