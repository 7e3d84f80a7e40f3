"""Everything that the driver says of one GPU."""

from __future__ import annotations

import ctypes
from typing import Any

import msgspec

from holdfast.analysis.machine import EccErrors, Gpu, PcieLink, RemappedRows
from holdfast.system.nvidia.bus_id import short_bus_id
from holdfast.system.nvidia.fabric_info import read_fabric_info
from holdfast.system.nvidia.gpu_holders import read_holders
from holdfast.system.nvidia.library import Library
from holdfast.system.nvidia.nvlinks import NvLinks

# Numbers of nvml.h: they never change, while names in the bindings come and go.
ARCHITECTURES = {
    2: "kepler",
    3: "maxwell",
    4: "pascal",
    5: "volta",
    6: "turing",
    7: "ampere",
    8: "ada",
    9: "hopper",
    10: "blackwell",
    13: "rubin",
}
COMPUTE_MODES = {0: "default", 1: "exclusive thread", 2: "prohibited", 3: "exclusive process"}
VIRTUALIZATIONS = {0: "none", 1: "passthrough", 2: "vgpu", 3: "host vgpu", 4: "host vsga"}
RECOVERY_ACTIONS = {
    0: "none",
    1: "gpu reset",
    2: "node reboot",
    3: "drain p2p",
    4: "drain and reset",
    5: "recover imex domain",
    6: "bus reset",
    7: "system reboot",
}
CLOCK_EVENTS = {
    0x001: "idle",
    0x002: "application clocks",
    0x004: "sw power cap",
    0x008: "hw slowdown",
    0x010: "sync boost",
    0x020: "sw thermal slowdown",
    0x040: "hw thermal slowdown",
    0x080: "hw power brake",
    0x100: "display clocks",
}
RECOVERY_ACTION, SLOWDOWN_MARGIN = 230, 194
"""fields; the second is relative to the temperature at which the card is at its limit"""
SLOWDOWN, SM_CLOCK, MEMORY_V2 = 1, 1, 0x02000028
CORRECTED, UNCORRECTED = 0, 1
SINCE_LOADED, EVER = 0, 1


def identify(nvml: Library, gpu: Any, index: int) -> Gpu:
    """Which one it is: what can be said even if the rest cannot be read."""
    pci = nvml.ask("nvmlDeviceGetPciInfo", gpu)
    return Gpu(
        index=index,
        uuid=nvml.ask("nvmlDeviceGetUUID", gpu) or "",
        name=nvml.ask("nvmlDeviceGetName", gpu) or "",
        bus_id=short_bus_id(pci.busId) if pci is not None else "",
        minor=nvml.number("nvmlDeviceGetMinorNumber", gpu),
    )


def read_gpu(nvml: Library, gpu: Any, known: Gpu) -> Gpu:
    """The rest of what `identify` began."""
    links = NvLinks(nvml, gpu)
    virtualization = nvml.number("nvmlDeviceGetVirtualizationMode", gpu)
    architecture = nvml.number("nvmlDeviceGetArchitecture", gpu)
    fields = nvml.fields(gpu, [(RECOVERY_ACTION, 0), (SLOWDOWN_MARGIN, 0)])
    return msgspec.structs.replace(
        read_use(nvml, gpu, known),
        **_health(nvml, gpu),
        **_heat(nvml, gpu, fields.get((SLOWDOWN_MARGIN, 0))),
        recovery_action=_named(RECOVERY_ACTIONS, fields.get((RECOVERY_ACTION, 0))),
        pcie=_pcie(nvml, gpu),
        persistence=_switch(nvml.number("nvmlDeviceGetPersistenceMode", gpu)),
        virtualization=VIRTUALIZATIONS.get(virtualization, "")
        if virtualization is not None
        else "",
        architecture=ARCHITECTURES.get(architecture, "") if architecture is not None else "",
        fabric=read_fabric_info(nvml, gpu),
        nvlinks=links.read(),
    )


def read_use(nvml: Library, gpu: Any, known: Gpu) -> Gpu:
    """Who uses it and how: what must be known before anything is tried on it."""
    mode = nvml.number("nvmlDeviceGetComputeMode", gpu)
    busy = nvml.ask("nvmlDeviceGetUtilizationRates", gpu)
    return msgspec.structs.replace(
        known,
        **_memory(nvml, gpu),
        **_mig(nvml, gpu),
        holders=read_holders(nvml, gpu, known.minor),
        busy=None if busy is None else int(busy.gpu),
        compute_mode=COMPUTE_MODES.get(mode, "") if mode is not None else "",
    )


def _memory(nvml: Library, gpu: Any) -> dict[str, Any]:
    """The newer call tells the driver's share apart; the older counts it as used."""
    newer = nvml.ask("nvmlDeviceGetMemoryInfo", gpu, MEMORY_V2)
    if newer is not None:
        return {
            "memory_total": int(newer.total),
            "memory_used": int(newer.used) + int(newer.reserved),
            "memory_reserved": int(newer.reserved),
        }
    older = nvml.ask("nvmlDeviceGetMemoryInfo", gpu)
    if older is None:
        return {}
    return {"memory_total": int(older.total), "memory_used": int(older.used)}


def _health(nvml: Library, gpu: Any) -> dict[str, Any]:
    mode = nvml.ask("nvmlDeviceGetEccMode", gpu)
    rows = nvml.ask("nvmlDeviceGetRemappedRows", gpu)
    reasons = nvml.number("nvmlDeviceGetCurrentClocksEventReasons", gpu)
    if reasons is None:  # the name it had before 535
        reasons = nvml.number("nvmlDeviceGetCurrentClocksThrottleReasons", gpu)
    return {
        "ecc": _ecc(nvml, gpu),
        "ecc_enabled": None if mode is None else bool(mode[0]),
        "remapped": None
        if rows is None
        else RemappedRows(
            correctable=rows[0], uncorrectable=rows[1], pending=bool(rows[2]), failed=bool(rows[3])
        ),
        "retired_pages_pending": _switch(
            nvml.number("nvmlDeviceGetRetiredPagesPendingStatus", gpu)
        ),
        "clock_events": tuple(n for bit, n in CLOCK_EVENTS.items() if (reasons or 0) & bit),
    }


def _ecc(nvml: Library, gpu: Any) -> EccErrors | None:
    def count(kind: int, since: int) -> int | None:
        return nvml.number("nvmlDeviceGetTotalEccErrors", gpu, kind, since)

    corrected, uncorrected = count(CORRECTED, SINCE_LOADED), count(UNCORRECTED, SINCE_LOADED)
    if corrected is None or uncorrected is None:
        return None
    return EccErrors(
        corrected=corrected,
        uncorrected=uncorrected,
        corrected_ever=count(CORRECTED, EVER),
        uncorrected_ever=count(UNCORRECTED, EVER),
        sram_threshold_exceeded=_sram_threshold(nvml, gpu),
    )


class _SramErrors(ctypes.Structure):
    """nvmlEccSramErrorStatus_v1_t"""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("counters", ctypes.c_ulonglong * 11),
        ("bThresholdExceeded", ctypes.c_uint),
    ]


def _sram_threshold(nvml: Library, gpu: Any) -> bool | None:
    status = _SramErrors(version=ctypes.sizeof(_SramErrors) | 1 << 24)
    told = nvml.ask("nvmlDeviceGetSramEccErrorStatus", gpu, ctypes.byref(status))
    return None if told is None else bool(status.bThresholdExceeded)


def _heat(nvml: Library, gpu: Any, slowdown_margin: int | None) -> dict[str, Any]:
    now = nvml.number("nvmlDeviceGetTemperature", gpu, 0)
    if now is None:  # the newer call, where the older has been taken away
        now = nvml.number("nvmlDeviceGetTemperatureV", gpu, 0)
    slowdown = nvml.number("nvmlDeviceGetTemperatureThreshold", gpu, SLOWDOWN)
    if not slowdown and now is not None and slowdown_margin is not None:
        # Newer cards tell how far they are from their limit, and the slowdown relative to it.
        margin = nvml.number("nvmlDeviceGetMarginTemperature", gpu)
        slowdown = None if margin is None else now + margin - slowdown_margin
    return {
        "temperature": now,
        "slowdown_temperature": slowdown or None,
        "power": _watts(nvml.number("nvmlDeviceGetPowerUsage", gpu)),
        "power_limit": _watts(nvml.number("nvmlDeviceGetEnforcedPowerLimit", gpu)),
        "default_power_limit": _watts(nvml.number("nvmlDeviceGetPowerManagementDefaultLimit", gpu)),
        "sm_clock": nvml.number("nvmlDeviceGetClockInfo", gpu, SM_CLOCK),
        "sm_clock_possible": nvml.number("nvmlDeviceGetMaxClockInfo", gpu, SM_CLOCK),
    }


def _pcie(nvml: Library, gpu: Any) -> PcieLink | None:
    width = nvml.number("nvmlDeviceGetCurrPcieLinkWidth", gpu)
    width_possible = nvml.number("nvmlDeviceGetMaxPcieLinkWidth", gpu)
    generation = nvml.number("nvmlDeviceGetCurrPcieLinkGeneration", gpu)
    generation_possible = nvml.number("nvmlDeviceGetMaxPcieLinkGeneration", gpu)
    if width is None or width_possible is None or generation is None or generation_possible is None:
        return None
    return PcieLink(
        width=width,
        width_possible=width_possible,
        generation=generation,
        generation_possible=generation_possible,
        replays=nvml.number("nvmlDeviceGetPcieReplayCounter", gpu),
    )


def _mig(nvml: Library, gpu: Any) -> dict[str, Any]:
    mode = nvml.ask("nvmlDeviceGetMigMode", gpu)
    if mode is None:
        return {}
    most = nvml.number("nvmlDeviceGetMaxMigDeviceCount", gpu) if mode[0] else None
    if most is None:
        return {"mig": bool(mode[0])}
    found = [nvml.ask("nvmlDeviceGetMigDeviceHandleByIndex", gpu, part) for part in range(most)]
    uuids = [nvml.ask("nvmlDeviceGetUUID", part) for part in found if part is not None]
    return {"mig": True, "mig_devices": tuple(uuid for uuid in uuids if uuid)}


def _named(names: dict[int, str], number: int | None) -> str | None:
    return None if number is None else names.get(number, f"unknown ({number})")


def _switch(number: int | None) -> bool | None:
    return None if number is None else bool(number)


def _watts(milliwatts: int | None) -> float | None:
    return None if milliwatts is None else milliwatts / 1e3
