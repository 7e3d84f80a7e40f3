"""Which accelerators and RDMA devices exist, by name only."""

from __future__ import annotations

import os
import re

from holdfast.analysis.machine import Plan


def read_rdma_devices(_plan: Plan, root: str = "/") -> tuple[str, ...]:
    return _names(os.path.join(root, "sys/class/infiniband"), r".+")


def read_accelerators(_plan: Plan, root: str = "/") -> tuple[str, ...]:
    return accelerator_nodes(root)


def accelerator_nodes(root: str = "/") -> tuple[str, ...]:
    """NVIDIA's numbered device nodes, and AMD's one node for all GPUs."""
    return tuple(f"/dev/{name}" for name in _names(os.path.join(root, "dev"), r"nvidia\d+|kfd"))


def _names(folder: str, pattern: str) -> tuple[str, ...]:
    """In the order people count: nvidia2 before nvidia10. No folder means no such device."""
    try:
        names = [name for name in os.listdir(folder) if re.fullmatch(pattern, name)]
    except FileNotFoundError:
        return ()
    return tuple(sorted(names, key=lambda name: (len(name), name)))
