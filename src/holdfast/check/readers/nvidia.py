"""NVIDIA's driver and every GPU it shows, by NVML."""

from __future__ import annotations

from holdfast.analysis.machine import NvidiaFacts, Plan, Unread
from holdfast.system.nvidia.driver import read_driver


def read_nvidia(_plan: Plan, root: str = "/") -> NvidiaFacts | Unread:
    return read_driver(root)
