"""Where GPUs and network cards are attached, and whether cards can read GPU memory."""

from __future__ import annotations

from holdfast.analysis.machine import GpuDirect, PciFacts, Plan, Unread


def read_pci(_plan: Plan) -> PciFacts | Unread:
    return Unread(why="not read yet")


def read_gpu_direct(_plan: Plan) -> GpuDirect | Unread:
    return Unread(why="not read yet")
