"""GPUs of many kinds, idle and healthy, as their drivers describe them.

The numbers are those of real machines: captures of `nvidia-smi -q -x` that NVIDIA keeps in
k8s-test-infra (tests/e2e/go/assertions/nvidiasmi/testdata/hardware), NVIDIA/nccl#2186 for the
health mask of an HGX H200, and bottlerocket-os/bottlerocket#3873 for A100 behind NVSwitch.
"""

from __future__ import annotations

from typing import Any

import msgspec

from tests.fakes.nvml.state import INT, UINT, FakeFabric, FakeGpu, FakeLink

MIB = 1 << 20
AMPERE, ADA, HOPPER, BLACKWELL, TURING = 7, 8, 9, 10, 6
PASSTHROUGH = 1
RECOVERY_ACTION, SLOWDOWN_MARGIN = 230, 194
NVLINK5_FIELDS = (206, 207, 208, 209, 210, 211, 212, 213, 214, 219, 221)
COMPLETED = FakeFabric(state=3)


def gpu(index: int = 0, **changes: Any) -> FakeGpu:
    """An idle H100 of an HGX board, as its owner sees it."""
    one = FakeGpu(
        name="NVIDIA H100 80GB HBM3",
        uuid=f"GPU-5fd4f087-86f3-7a43-b711-47710600000{index}",
        bus_id=f"00000000:{0x1B + 0x11 * index:02X}:00.0",
        minor=index,
        architecture=HOPPER,
        memory_total=81559 * MIB,
        memory_reserved=480 * MIB,
        temperature=29,
        margin=58,
        power=68_570,
        fields={RECOVERY_ACTION: (UINT, 0), SLOWDOWN_MARGIN: (INT, -2)},
        links=nvlinks(18),
        fabric=COMPLETED,
    )
    return msgspec.structs.replace(one, **changes)


def nvlinks(count: int, **changes: Any) -> tuple[FakeLink, ...]:
    return tuple(FakeLink(**changes) for _ in range(count))


def a100(index: int = 0, **changes: Any) -> FakeGpu:
    """It has no fabric state, though it is behind NVSwitch."""
    kind = {
        "name": "NVIDIA A100-SXM4-40GB",
        "architecture": AMPERE,
        "memory_total": 40960 * MIB,
        "memory_reserved": 518 * MIB,
        "temperature": 33,
        "margin": None,
        "slowdown_threshold": 89,
        "power": 49_680,
        "power_limit": 400_000,
        "default_power_limit": 400_000,
        "sm_clock": 210,
        "max_sm_clock": 1410,
        "pcie": (16, 16, 4, 4),
        "fields": {RECOVERY_ACTION: (UINT, 0)},
        "links": nvlinks(12),
        "fabric": FakeFabric(state=0),
    }
    return gpu(index, **{**kind, **changes})


def h200(index: int = 0, **changes: Any) -> FakeGpu:
    kind = {"name": "NVIDIA H200", "memory_total": 143771 * MIB, "memory_reserved": 615 * MIB}
    fabric = FakeFabric(state=3, health_mask=0xAA)
    return gpu(index, **{**kind, "fabric": fabric, **changes})


def b200(index: int = 0, **changes: Any) -> FakeGpu:
    """Not kept awake; its links count errors by fields, and of its health it tells one part."""
    kind = {
        "name": "NVIDIA B200",
        "architecture": BLACKWELL,
        "memory_total": 183359 * MIB,
        "memory_reserved": 728 * MIB,
        "temperature": 39,
        "margin": 49,
        "power": 195_680,
        "power_limit": 1_000_000,
        "default_power_limit": 1_000_000,
        "sm_clock": 120,
        "max_sm_clock": 1965,
        "persistence": 0,
        "fields": {RECOVERY_ACTION: (UINT, 0), SLOWDOWN_MARGIN: (INT, -3)},
        "links": nvlinks(18, errors=None, fields=dict.fromkeys(NVLINK5_FIELDS, 0)),
        "fabric": FakeFabric(state=3, health_mask=0x80, summary=1),
    }
    return gpu(index, **{**kind, **changes})


def gb200(index: int = 0, **changes: Any) -> FakeGpu:
    """One of four in a tray; the switches are elsewhere in the rack."""
    kind = {
        "name": "NVIDIA GB200",
        "memory_total": 189471 * MIB,
        "memory_reserved": 742 * MIB,
        "temperature": 27,
        "margin": 60,
        "power": 165_930,
        "power_limit": 1_200_000,
        "default_power_limit": 1_200_000,
        "max_sm_clock": 2062,
        "persistence": 1,
        "fabric": FakeFabric(
            state=3,
            clique=2,
            cluster="9c6f5af3-53bf-49b5-a436-b66766c413c3",
            health_mask=0xAA,
            summary=1,
        ),
    }
    return b200(index, **{**kind, **changes})


def l40s(index: int = 0, **changes: Any) -> FakeGpu:
    """A PCIe card without NVLink and MIG, idle: its link has gone down to the first generation."""
    kind = {
        "name": "NVIDIA L40S",
        "architecture": ADA,
        "memory_total": 46068 * MIB,
        "memory_reserved": 609 * MIB,
        "margin": 59,
        "power": 35_640,
        "power_limit": 350_000,
        "default_power_limit": 350_000,
        "sm_clock": 210,
        "max_sm_clock": 2520,
        "pcie": (16, 16, 1, 4),
        "mig": None,
        "links": (),
        "fabric": FakeFabric(state=0),
    }
    return gpu(index, **{**kind, **changes})


def t4(index: int = 0, **changes: Any) -> FakeGpu:
    """Before Ampere it has retired pages instead of remapped rows. A cloud's: eight of its sixteen
    lanes are wired."""
    kind = {
        "name": "Tesla T4",
        "architecture": TURING,
        "memory_total": 15360 * MIB,
        "memory_reserved": 448 * MIB,
        "margin": None,
        "slowdown_threshold": 93,
        "ecc_errors": (1, 0, 1, 0),
        "sram_threshold_exceeded": None,
        "remapped": None,
        "retired_pending": 0,
        "power_limit": 70_000,
        "default_power_limit": 70_000,
        "power": 33_510,
        "sm_clock": 1590,
        "max_sm_clock": 1590,
        "pcie": (8, 16, 3, 3),
        "virtualization": PASSTHROUGH,
        "fields": {RECOVERY_ACTION: (UINT, 0)},
    }
    return l40s(index, **{**kind, **changes})


def geforce(index: int = 0, **changes: Any) -> FakeGpu:
    """A workstation's: no ECC, no row remapping, a screen's clocks, and nothing of a fabric."""
    kind = {
        "name": "NVIDIA GeForce RTX 4090",
        "memory_total": 24564 * MIB,
        "memory_reserved": 414 * MIB,
        "margin": 51,
        "ecc_mode": None,
        "sram_threshold_exceeded": None,
        "remapped": None,
        "replays": 0,
        "power": 21_000,
        "power_limit": 450_000,
        "default_power_limit": 450_000,
        "persistence": 0,
        "max_sm_clock": 3105,
        "fabric": None,
    }
    return l40s(index, **{**kind, **changes})
