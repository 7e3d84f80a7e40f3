"""Whole machines around a fake driver: what else is seen of them where nothing is wrong."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest

from holdfast.analysis import machine as f
from holdfast.system.nvidia import nvlinks
from holdfast.system.nvidia.driver import read_driver
from tests.fakes.nvml.install import install
from tests.fakes.nvml.state import FakeDriver
from tests.faults import made_gpus
from tests.faults.machines import a_machine, a_plan, software

SWITCHES = {"hgx_a100": 6, "hgx_h100": 4, "hgx_h200": 4, "hgx_b200": 2}
"""NVSwitches that these show, with a fabric manager beside them"""
TORCH = {"470.57.02": "11.3", "535.183.01": "12.1", "570.148.08": "12.8"}
"""driver -> CUDA of a torch that fits it, where it is not the newest"""


def read_machine(patch: pytest.MonkeyPatch, name: str, driver: FakeDriver) -> f.MachineFacts:
    """The GPUs by NVIDIA's bindings; the rest as it is on such a machine."""
    patch.setattr(nvlinks, "BETWEEN", 0.0)
    install(patch, driver)
    nvidia = read_driver()
    assert isinstance(nvidia, f.NvidiaFacts)
    torch = software(nccl="2.29.7")
    cuda = TORCH.get(driver.version, "12.8" if driver.cuda < 13000 else "13.0")
    return a_machine(
        a_plan(nproc=len(nvidia.gpus) or 1),
        nvidia=nvidia,
        accelerators=tuple(f"/dev/nvidia{gpu.minor}" for gpu in nvidia.gpus),
        software=msgspec.structs.replace(torch, torch_cuda=cuda),
        cuda=_cuda(nvidia),
        fabric=_fabric(name, driver),
        pci=_pci(nvidia),
    )


def _cuda(nvidia: f.NvidiaFacts) -> f.CudaFacts:
    """Every GPU can be used; one that others use was not tried further."""
    probes = tuple(
        f.CudaProbe(
            index=gpu.index,
            uuid=gpu.uuid,
            step="init" if gpu.holders else "copy",
            code=0,
            error="",
            seconds=0.2,
            skipped="another program uses this GPU" if gpu.holders else "",
        )
        for gpu in nvidia.gpus
        if not gpu.unread
    )
    return made_gpus.cuda(version=nvidia.cuda, probes=probes)


def _fabric(name: str, driver: FakeDriver) -> f.FabricFacts:
    if switches := SWITCHES.get(name, 0):
        return made_gpus.no_fabric(
            nvswitches=switches, manager=made_gpus.a_service(version=driver.version)
        )
    if name.startswith("gb200"):
        return made_gpus.no_fabric(imex=made_gpus.a_service(version=driver.version))
    return made_gpus.no_fabric()


def _pci(nvidia: f.NvidiaFacts) -> f.PciFacts:
    devices = tuple(
        f.PciDevice(
            bus_id=gpu.bus_id,
            kind="gpu",
            name=f"GPU{gpu.index}",
            above=(),
            root=f"pci{gpu.bus_id[:7]}",
            numa=0,
        )
        for gpu in nvidia.gpus
    )
    guest = any(gpu.virtualization == "passthrough" for gpu in nvidia.gpus)
    changes: dict[str, Any] = {"virtual_machine": "kvm"} if guest else {}
    return made_gpus.pci(devices=devices, **changes)
