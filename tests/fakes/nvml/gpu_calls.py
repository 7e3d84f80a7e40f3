"""The calls of NVML that ask for a GPU: what each writes, and when it refuses."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from tests.fakes.nvml.layouts import (
    INSUFFICIENT_SIZE,
    NOT_AVAILABLE,
    NOT_SUPPORTED,
    SUCCESS,
    VERSION_MISMATCH,
    ProcessInfo,
    array,
    put,
    put_pci_info,
    put_text,
    whole,
)
from tests.fakes.nvml.session import Session, answers
from tests.fakes.nvml.state import FakeGpu

NOT_FOUND = 6
FIRST_PART = 0x7F1000000000
"""handles of parts of a GPU (MIG): sixteen for each GPU"""

NUMBERS: dict[str, Callable[[FakeGpu], int | None]] = {
    "nvmlDeviceGetMinorNumber": lambda g: g.minor,
    "nvmlDeviceGetArchitecture": lambda g: g.architecture,
    "nvmlDeviceGetRetiredPagesPendingStatus": lambda g: g.retired_pending,
    "nvmlDeviceGetPowerUsage": lambda g: g.power,
    "nvmlDeviceGetEnforcedPowerLimit": lambda g: g.power_limit,
    "nvmlDeviceGetPowerManagementDefaultLimit": lambda g: g.default_power_limit,
    "nvmlDeviceGetCurrPcieLinkWidth": lambda g: g.pcie and g.pcie[0],
    "nvmlDeviceGetMaxPcieLinkWidth": lambda g: g.pcie and g.pcie[1],
    "nvmlDeviceGetCurrPcieLinkGeneration": lambda g: g.pcie and g.pcie[2],
    "nvmlDeviceGetMaxPcieLinkGeneration": lambda g: g.pcie and g.pcie[3],
    "nvmlDeviceGetPcieReplayCounter": lambda g: g.replays,
    "nvmlDeviceGetMaxMigDeviceCount": lambda g: 0 if g.mig is None else 7 * g.mig,
    "nvmlDeviceGetPersistenceMode": lambda g: g.persistence,
    "nvmlDeviceGetComputeMode": lambda g: g.compute_mode,
    "nvmlDeviceGetVirtualizationMode": lambda g: g.virtualization,
}
"""calls that write one unsigned int"""
REASONS = (
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetCurrentClocksThrottleReasons",
)


@answers("nvmlDeviceGetName")
def name(session: Session, gpu: FakeGpu, out: Any, size: Any) -> int:
    return put_text(out, size, gpu.name)


@answers("nvmlDeviceGetUUID")
def identity(session: Session, gpu: FakeGpu | str, out: Any, size: Any) -> int:
    return put_text(out, size, gpu if isinstance(gpu, str) else gpu.uuid)


@answers("nvmlDeviceGetPciInfo_v3")
def pci_info_v3(session: Session, gpu: FakeGpu, out: Any) -> int:
    return put_pci_info(out, gpu.bus_id)


@answers("nvmlDeviceGetMemoryInfo")
def memory_info(session: Session, gpu: FakeGpu, out: Any) -> int:
    used = gpu.memory_used + gpu.memory_reserved
    array(out, ctypes.c_ulonglong, 3)[:] = [gpu.memory_total, gpu.memory_total - used, used]
    return SUCCESS


@answers("nvmlDeviceGetMemoryInfo_v2")
def memory_info_v2(session: Session, gpu: FakeGpu, out: Any) -> int:
    if array(out, ctypes.c_uint, 1)[0] != 0x02000028:
        return VERSION_MISMATCH
    free = gpu.memory_total - gpu.memory_used - gpu.memory_reserved
    numbers = [gpu.memory_total, gpu.memory_reserved, free, gpu.memory_used]
    array(out, ctypes.c_ulonglong, 5)[1:] = numbers
    return SUCCESS


@answers("nvmlDeviceGetUtilizationRates")
def utilization_rates(session: Session, gpu: FakeGpu, out: Any) -> int:
    if gpu.utilization is None:
        return NOT_SUPPORTED
    array(out, ctypes.c_uint, 2)[:] = [gpu.utilization, 0]
    return SUCCESS


@answers("nvmlDeviceGetEccMode")
def ecc_mode(session: Session, gpu: FakeGpu, now: Any, pending: Any) -> int:
    return put(now, ctypes.c_uint, gpu.ecc_mode) or put(pending, ctypes.c_uint, gpu.ecc_mode)


@answers("nvmlDeviceGetTotalEccErrors")
def total_ecc_errors(session: Session, gpu: FakeGpu, kind: Any, since: Any, out: Any) -> int:
    if not gpu.ecc_mode:
        return NOT_SUPPORTED
    return put(out, ctypes.c_ulonglong, gpu.ecc_errors[whole(kind) + 2 * whole(since)])


@answers("nvmlDeviceGetSramEccErrorStatus")
def sram_ecc_error_status(session: Session, gpu: FakeGpu, out: Any) -> int:
    if array(out, ctypes.c_uint, 1)[0] != 0x01000068:
        return VERSION_MISMATCH
    if gpu.sram_threshold_exceeded is None:
        return NOT_SUPPORTED
    array(out, ctypes.c_uint, 26)[24] = gpu.sram_threshold_exceeded
    return SUCCESS


@answers("nvmlDeviceGetRemappedRows")
def remapped_rows(session: Session, gpu: FakeGpu, *outs: Any) -> int:
    if gpu.remapped is None:
        return NOT_SUPPORTED
    for out, value in zip(outs, gpu.remapped, strict=True):
        put(out, ctypes.c_uint, value)
    return SUCCESS


@answers("nvmlDeviceGetTemperature")
def temperature(session: Session, gpu: FakeGpu, _sensor: Any, out: Any) -> int:
    return put(out, ctypes.c_uint, gpu.temperature)


@answers("nvmlDeviceGetTemperatureV")
def temperature_v(session: Session, gpu: FakeGpu, out: Any) -> int:
    array(out, ctypes.c_int, 3)[2] = gpu.temperature
    return SUCCESS


@answers("nvmlDeviceGetTemperatureThreshold")
def temperature_threshold(session: Session, gpu: FakeGpu, which: Any, out: Any) -> int:
    return put(out, ctypes.c_uint, gpu.slowdown_threshold if whole(which) == 1 else None)


@answers("nvmlDeviceGetMarginTemperature")
def margin_temperature(session: Session, gpu: FakeGpu, out: Any) -> int:
    if gpu.margin is None:
        return NOT_SUPPORTED
    array(out, ctypes.c_int, 2)[1] = gpu.margin
    return SUCCESS


@answers("nvmlDeviceGetClockInfo")
def clock_info(session: Session, gpu: FakeGpu, _clock: Any, out: Any) -> int:
    return put(out, ctypes.c_uint, gpu.sm_clock)


@answers("nvmlDeviceGetMaxClockInfo")
def max_clock_info(session: Session, gpu: FakeGpu, _clock: Any, out: Any) -> int:
    return put(out, ctypes.c_uint, gpu.max_sm_clock)


@answers("nvmlDeviceGetMigMode")
def mig_mode(session: Session, gpu: FakeGpu, now: Any, pending: Any) -> int:
    return put(now, ctypes.c_uint, gpu.mig) or put(pending, ctypes.c_uint, gpu.mig)


@answers("nvmlDeviceGetMigDeviceHandleByIndex")
def mig_device_handle_by_index(session: Session, gpu: FakeGpu, index: Any, out: Any) -> int:
    part = whole(index)
    if part >= len(gpu.mig_uuids):
        return NOT_FOUND
    place = session.driver.gpus.index(gpu)
    return put(out, ctypes.c_void_p, FIRST_PART + 16 * place + part)


# --- processes ------------------------------------------------------------------------------------


@answers("nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetComputeRunningProcesses_v2")
def compute_running_processes_v3(session: Session, gpu: FakeGpu, count: Any, out: Any) -> int:
    room = array(count, ctypes.c_uint, 1)
    offered, room[0] = room[0], len(gpu.processes)
    if offered < len(gpu.processes):
        return INSUFFICIENT_SIZE
    entries: Any = ctypes.cast(out, ctypes.POINTER(ProcessInfo)) if out is not None else []
    for place, (pid, used) in enumerate(gpu.processes):
        memory = NOT_AVAILABLE if used is None else used
        entries[place] = ProcessInfo(pid, memory, 0xFFFFFFFF, 0xFFFFFFFF)
    return SUCCESS


@answers(
    "nvmlDeviceGetGraphicsRunningProcesses_v3",
    "nvmlDeviceGetGraphicsRunningProcesses_v2",
    "nvmlDeviceGetMPSComputeRunningProcesses_v3",
    "nvmlDeviceGetMPSComputeRunningProcesses_v2",
)
def graphics_running_processes_v3(session: Session, _gpu: FakeGpu, count: Any, _: Any) -> int:
    return put(count, ctypes.c_uint, 0)
