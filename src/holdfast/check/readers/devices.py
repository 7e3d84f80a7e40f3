"""Which accelerators exist, by name."""

from __future__ import annotations

import os

from holdfast.analysis.machine import Plan
from holdfast.system.rdma import numbered


def read_accelerators(_plan: Plan, root: str = "/") -> tuple[str, ...]:
    return accelerator_nodes(root)


def accelerator_nodes(root: str = "/") -> tuple[str, ...]:
    """NVIDIA's numbered device nodes, and AMD's one node for all GPUs."""
    return tuple(f"/dev/{name}" for name in numbered(os.path.join(root, "dev"), r"nvidia\d+|kfd"))
