"""Healthy GPUs to start from; a test changes the one fact it is about."""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis import machine as f

GIB = 1 << 30
DRIVER = "580.95.05"


def a_gpu(index: int = 0, **changes: Any) -> f.Gpu:
    """An idle H100 in a PCIe slot."""
    gpu = f.Gpu(
        index=index,
        uuid=f"GPU-00000000-0000-0000-0000-00000000000{index}",
        name="NVIDIA H100 PCIe",
        bus_id=f"0000:{0x1B + 0x10 * index:02x}:00.0",
        minor=index,
        memory_total=80 * GIB,
        memory_used=GIB // 2,
        busy=0,
        ecc=f.EccErrors(corrected=0, uncorrected=0, corrected_ever=0, uncorrected_ever=0),
        ecc_enabled=True,
        remapped=f.RemappedRows(correctable=0, uncorrectable=0, pending=False, failed=False),
        recovery_action="none",
        clock_events=("idle",),
        temperature=34,
        slowdown_temperature=92,
        power=48.0,
        power_limit=350.0,
        default_power_limit=350.0,
        sm_clock=345,
        sm_clock_possible=1755,
        pcie=f.PcieLink(width=16, width_possible=16, generation=1, generation_possible=5),
        mig=False,
        persistence=True,
        compute_mode="default",
        virtualization="none",
        architecture="hopper",
        fabric=f.GpuFabric(state="not supported", status=""),
    )
    return msgspec.structs.replace(gpu, **changes)


def an_sxm_gpu(index: int = 0, **changes: Any) -> f.Gpu:
    """An idle H100 of an HGX board, behind NVSwitch and registered with its fabric."""
    links = tuple(f.NvLink(index=n, active=True, remote="switch") for n in range(18))
    fabric = f.GpuFabric(state="completed", status="success", health_mask=0xAA)
    changed = {"name": "NVIDIA H100 80GB HBM3", "nvlinks": links, "fabric": fabric, **changes}
    return a_gpu(index, **changed)


def nvidia(*gpus: f.Gpu, **changes: Any) -> f.NvidiaFacts:
    """A driver that works, with these GPUs; four in PCIe slots where none is given."""
    facts = f.NvidiaFacts(
        present=True,
        module=DRIVER,
        open_module=True,
        library=DRIVER,
        cuda="13.0",
        gpus=gpus or tuple(a_gpu(index) for index in range(4)),
        bindings="13.615.71",
    )
    return msgspec.structs.replace(facts, **changes)


def cuda(gpus: int = 4, **changes: Any) -> f.CudaFacts:
    """Every GPU can be used."""
    probes = tuple(
        f.CudaProbe(index=gpu.index, uuid=gpu.uuid, step="copy", code=0, error="", seconds=0.3)
        for gpu in map(a_gpu, range(gpus))
    )
    facts = f.CudaFacts(
        library="/usr/lib/x86_64-linux-gnu/libcuda.so.1",
        compat=False,
        version="13.0",
        probes=probes,
    )
    return msgspec.structs.replace(facts, **changes)


def a_service(state: str = "active", **changes: Any) -> f.ServiceState:
    service = f.ServiceState(state=state, sign=f"systemctl: ActiveState={state}", version=DRIVER)
    return msgspec.structs.replace(service, **changes)


def no_fabric(**changes: Any) -> f.FabricFacts:
    """A machine without NVSwitch and without the services for it."""
    none = a_service("not installed", version="")
    facts = f.FabricFacts(nvswitches=0, manager=none, imex=none, boot_seconds=86400.0)
    return msgspec.structs.replace(facts, **changes)


def pci(**changes: Any) -> f.PciFacts:
    """Four GPUs on one socket of bare metal, each in a slot of the root complex."""
    devices = tuple(
        f.PciDevice(
            bus_id=gpu.bus_id,
            kind="gpu",
            name=f"GPU{gpu.index}",
            above=(),
            root=f"pci0000:{gpu.bus_id[5:7]}",
            numa=0,
        )
        for gpu in map(a_gpu, range(4))
    )
    facts = f.PciFacts(
        devices=devices,
        acs_readable=True,
        iommu="off",
        virtual_machine="",
        numa_cpus={0: "0-63"},
        cpus_usable="0-63",
    )
    return msgspec.structs.replace(facts, **changes)
