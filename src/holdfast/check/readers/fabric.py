"""NVSwitches, the fabric manager and IMEX, as far as they can be seen from here."""

from __future__ import annotations

import os
import re
import time

from holdfast.analysis.machine import FabricFacts, Plan
from holdfast.system import services

MANAGER = services.Service(
    unit="nvidia-fabricmanager", program="nv-fabricmanager", log="/var/log/fabricmanager.log"
)
IMEX = services.Service(unit="nvidia-imex", program="nvidia-imex", log="/var/log/nvidia-imex.log")
NVIDIA, SWITCH_CLASS = "0x10de", "0x0680"
"""of PCI: vendor, and the class 'other bridge' under which NVSwitches up to H200's show"""


def read_fabric(_plan: Plan, root: str = "/") -> FabricFacts:
    manager, imex = services.look(MANAGER, IMEX, root=root)
    return FabricFacts(
        nvswitches=count_switches(root),
        manager=manager,
        imex=imex,
        imex_channels=tuple(_channels(root)),
        boot_seconds=time.clock_gettime(time.CLOCK_BOOTTIME),
    )


def count_switches(root: str) -> int:
    """A container may lack the device nodes, a driver before 2020 the folder in /proc; the
    switches of NVLink 5 (B200 and later) show nowhere here."""
    nodes = [n for n in _names(root, "dev") if re.fullmatch(r"nvidia-nvswitch\d+", n)]
    driven = _names(root, "proc/driver/nvidia-nvswitch/devices")
    on_pci = [n for n in _names(root, "sys/bus/pci/devices") if _is_switch(root, n)]
    return max(len(nodes), len(driven), len(on_pci))


def _is_switch(root: str, device: str) -> bool:
    folder = f"sys/bus/pci/devices/{device}"
    return _word(root, f"{folder}/vendor") == NVIDIA and _word(root, f"{folder}/class").startswith(
        SWITCH_CLASS
    )


def _channels(root: str) -> list[str]:
    return [
        f"/dev/nvidia-caps-imex-channels/{name}"
        for name in _names(root, "dev/nvidia-caps-imex-channels")
    ]


def _names(root: str, folder: str) -> list[str]:
    try:
        return sorted(os.listdir(os.path.join(root, folder)))
    except OSError:
        return []


def _word(root: str, path: str) -> str:
    try:
        with open(os.path.join(root, path), encoding="ascii") as file:
            return file.read().strip()
    except (OSError, UnicodeDecodeError):
        return ""
