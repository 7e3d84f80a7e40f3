"""Whole machines for the fake driver: healthy ones of many kinds, and some that are not.

`with_mig` and the broken ones are made; where the healthy ones come from is said in gpu_kinds.py,
but for leptonai/gpud#1106 (a GB200 whose driver does not tell its health) and one recorded by hand.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from tests.fakes.nvml.gpu_kinds import (
    AMPERE,
    BLACKWELL,
    PASSTHROUGH,
    a100,
    b200,
    gb200,
    geforce,
    gpu,
    h200,
    l40s,
    nvlinks,
    t4,
)
from tests.fakes.nvml.state import FakeDriver, FakeFabric, FakeGpu

LOST, NO_PERMISSION, MISMATCH, NOT_LOADED = 15, 4, 18, 9


def _driver(
    make: Callable[..., FakeGpu], count: int, version: str = "580.105.08", cuda: int = 13000
) -> FakeDriver:
    return FakeDriver(version=version, cuda=cuda, gpus=tuple(make(n) for n in range(count)))


# --- healthy machines ---------------------------------------------------------------------------


def hgx_a100() -> FakeDriver:
    return _driver(a100, 8, version="570.148.08", cuda=12080)


def hgx_h100() -> FakeDriver:
    """In a virtual machine that has the whole board; its links corrected transfers on PCIe."""
    return _driver(lambda n: gpu(n, virtualization=PASSTHROUGH, replays=150), 8)


def hgx_h200() -> FakeDriver:
    return _driver(h200, 8)


def hgx_b200() -> FakeDriver:
    return _driver(b200, 8)


def gb200_tray() -> FakeDriver:
    return _driver(lambda n: gb200(n, virtualization=PASSTHROUGH), 4, version="580.173.02")


def gb200_without_health() -> FakeDriver:
    fabric = FakeFabric(state=3, clique=4026, cluster="9c6f5af3-53bf-49b5-a436-b66766c413c3")
    return _driver(lambda n: gb200(n, fabric=fabric), 4, version="570.124.06", cuda=12080)


def pcie_cards() -> FakeDriver:
    return _driver(l40s, 4, version="595.91.07", cuda=13020)


def h100_pcie_without_bridges() -> FakeDriver:
    """It could have NVLink: all its links are inactive."""
    inactive = nvlinks(12, active=False)
    name = "NVIDIA H100 PCIe"
    return _driver(
        lambda n: gpu(
            n, name=name, links=inactive, fabric=FakeFabric(state=0), pcie=(16, 16, 1, 5)
        ),
        2,
    )


def a40_with_a_bridge() -> FakeDriver:
    """Two cards joined by one bridge of four links."""

    def card(n: int) -> FakeGpu:
        links = nvlinks(
            4, remote_type=0, remote_bus_id=f"00000000:{0x1B + 0x11 * (1 - n):02X}:00.0"
        )
        changed = {"name": "NVIDIA A40", "architecture": AMPERE, "links": links, "fabric": None}
        return l40s(n, **changed)

    return _driver(card, 2, version="535.183.01", cuda=12020)


def cloud_t4() -> FakeDriver:
    return _driver(t4, 1, version="595.91.07", cuda=13020)


def cloud_l40s() -> FakeDriver:
    """Eight of its sixteen lanes are wired."""
    one = l40s(pcie=(8, 16, 4, 4), virtualization=PASSTHROUGH, sm_clock=2040, power=65_640)
    return FakeDriver(version="595.91.07", cuda=13020, gpus=(one,))


def workstation() -> FakeDriver:
    return _driver(geforce, 2, version="570.86.15", cuda=12080)


def one_passed_through() -> FakeDriver:
    """One H200 of a board, given to a virtual machine: no NVLink, no fabric. Recorded by hand."""
    one = h200(
        bus_id="00000000:00:06.0",
        uuid="GPU-244110a0-0000-0000-0000-000000000000",
        memory_total=150754820096,
        memory_reserved=644939776,
        temperature=37,
        slowdown_threshold=89,
        margin=50,
        power=78_765,
        virtualization=PASSTHROUGH,
        links=(),
        fabric=FakeFabric(state=0),
    )
    return FakeDriver(version="580.159.04", cuda=13000, gpus=(one,))


def container() -> FakeDriver:
    """Two of a board's eight GPUs; the processes on them have the machine's numbers."""
    two = tuple(h200(n, minor=n + 4, processes=((4_000_000 + n, None),)) for n in range(2))
    return FakeDriver(version="580.105.08", cuda=13000, gpus=two)


def old_driver() -> FakeDriver:
    """Of 2021: no fabric, no event reasons by that name, no margins, no newer fields."""
    missing = (
        "nvmlDeviceGetGpuFabricInfo",
        "nvmlDeviceGetGpuFabricInfoV",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetComputeRunningProcesses_v3",
        "nvmlDeviceGetGraphicsRunningProcesses_v3",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetMarginTemperature",
        "nvmlDeviceGetSramEccErrorStatus",
        "nvmlDeviceGetTemperatureV",
    )
    older = _driver(lambda n: a100(n, fields={}, fabric=None), 8, version="470.57.02", cuda=11040)
    return msgspec.structs.replace(older, missing=missing)


def with_mig() -> FakeDriver:
    parts = tuple(f"MIG-8b4f1a3c-0000-0000-0000-00000000000{n}" for n in range(3))
    return _driver(lambda n: a100(n, mig=1, mig_uuids=parts, utilization=None), 1)


def vgpu_guest() -> FakeDriver:
    """A virtual GPU: the host keeps health, heat, power and the PCIe link to itself."""
    kept = (
        "nvmlDeviceGetPowerUsage",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPowerManagementDefaultLimit",
        "nvmlDeviceGetTemperature",
        "nvmlDeviceGetTemperatureV",
        "nvmlDeviceGetClockInfo",
        "nvmlDeviceGetMaxClockInfo",
        "nvmlDeviceGetCurrentClocksEventReasons",
        "nvmlDeviceGetCurrentClocksThrottleReasons",
        "nvmlDeviceGetFieldValues",
    )
    one = geforce(
        name="GRID A100D-20C",
        architecture=AMPERE,
        virtualization=2,
        pcie=None,
        margin=None,
        refusals=dict.fromkeys(kept, 3),
    )
    return FakeDriver(version="550.90.07", cuda=12040, gpus=(one,))


def grace_hopper() -> FakeDriver:
    """One GPU and one processor: its links to switches are there, and lead nowhere."""
    one = gpu(
        name="NVIDIA GH200 480GB",
        memory_total=97871 << 20,
        power_limit=900_000,
        default_power_limit=900_000,
        links=nvlinks(18, active=False),
        fabric=FakeFabric(state=0),
    )
    return FakeDriver(version="580.105.08", cuda=13000, gpus=(one,))


def shared_memory() -> FakeDriver:
    """Processor and GPU are one chip with one memory (GB10): the driver does not count it, and
    shows a PCIe link that nothing goes over (Syllo/nvtop#426)."""
    not_told = (
        "nvmlDeviceGetMemoryInfo",
        "nvmlDeviceGetMemoryInfo_v2",
        "nvmlDeviceGetEnforcedPowerLimit",
        "nvmlDeviceGetPowerManagementDefaultLimit",
    )
    one = geforce(
        name="NVIDIA GB10",
        bus_id="0000000F:01:00.0",
        architecture=BLACKWELL,
        pcie=(1, 16, 1, 5),
        refusals=dict.fromkeys(not_told, 3),
    )
    return FakeDriver(version="580.95.05", cuda=13000, gpus=(one,))


def in_use() -> FakeDriver:
    """A job of this user runs on all GPUs: hot, at its power cap, and so are its clocks."""
    busy = {
        "utilization": 100,
        "power": 695_000,
        "temperature": 71,
        "margin": 16,
        "clock_reasons": 0x4,
        "sm_clock": 1620,
    }
    return _driver(lambda n: h200(n, **busy), 8)


HEALTHY: dict[str, Callable[[], FakeDriver]] = {
    made.__name__: made
    for made in (
        hgx_a100,
        hgx_h100,
        hgx_h200,
        hgx_b200,
        gb200_tray,
        gb200_without_health,
        pcie_cards,
        h100_pcie_without_bridges,
        a40_with_a_bridge,
        cloud_t4,
        cloud_l40s,
        workstation,
        one_passed_through,
        container,
        old_driver,
        with_mig,
        vgpu_guest,
        grace_hopper,
        shared_memory,
        in_use,
    )
}


# --- machines on which something is wrong -------------------------------------------------------


def changed(driver: FakeDriver, index: int, **changes: Any) -> FakeDriver:
    """The same machine, but for one of its GPUs."""
    gpus = list(driver.gpus)
    gpus[index] = msgspec.structs.replace(gpus[index], **changes)
    return msgspec.structs.replace(driver, gpus=tuple(gpus))


def lost_gpu() -> FakeDriver:
    return changed(hgx_h100(), 3, refusals={"*": LOST})


def hung_gpu(call: str = "nvmlDeviceGetHandleByIndex_v2") -> FakeDriver:
    return changed(hgx_h100(), 5, hangs=(call,))


def without_permission() -> FakeDriver:
    """Slurm gave GPU 1 to another job."""
    return changed(pcie_cards(), 1, refusals={"*": NO_PERMISSION})


def mismatch() -> FakeDriver:
    """The packages were upgraded, and the old kernel module is still loaded."""
    return FakeDriver(version="580.95.05", library="580.105.08", cuda=13000, init_code=MISMATCH)


def not_loaded() -> FakeDriver:
    return FakeDriver(version="580.95.05", cuda=13000, init_code=NOT_LOADED)


def hung_driver() -> FakeDriver:
    return FakeDriver(version="580.95.05", cuda=13000, hangs=("nvmlInitWithFlags",))
