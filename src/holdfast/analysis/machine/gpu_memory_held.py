"""How much of a GPU's memory is taken before a job starts, and which processes hold it."""

from __future__ import annotations

from collections.abc import Collection

from holdfast import text
from holdfast.analysis.machine.fact import Fact, Unread
from holdfast.analysis.machine.gpu import Gpu, GpuHolder

SHOWN = 4
"""processes named of one GPU"""
SHARED_WITH_HOST = ("NVIDIA GH200", "NVIDIA GB")
"""the host may keep its page cache in the memory of these: what no process holds is not taken"""


class HeldGpu(Fact, frozen=True):
    gpu: Gpu
    taken: int
    """bytes, without the driver's own share"""
    holders: tuple[GpuHolder, ...]
    """the largest first"""
    unseen: str
    """why no process is named; '' when they are"""

    @property
    def share(self) -> float:
        return self.taken / self.gpu.memory_total if self.gpu.memory_total else 0.0

    @property
    def description(self) -> str:
        """So that their owners recognise them."""
        total = text.size(self.gpu.memory_total or 0)
        shown = [describe(holder) for holder in self.holders[:SHOWN]]
        more = len(self.holders) - len(shown)
        who = "; ".join([*shown, *([f"{more} more"] if more else [])]) or self.unseen
        return f"GPU {self.gpu.index}: {text.size(self.taken)} of {total} taken: {who}"


def held(gpu: Gpu) -> HeldGpu:
    listed = gpu.holders
    holders = () if isinstance(listed, Unread) else listed
    ordered = tuple(sorted(holders, key=lambda holder: -(holder.memory or 0)))
    by_process = sum(holder.memory or 0 for holder in ordered)
    used = max(0, (gpu.memory_used or 0) - (gpu.memory_reserved or 0))
    elsewhere = not gpu.name.startswith(SHARED_WITH_HOST)
    unseen = listed.why if isinstance(listed, Unread) else "by processes that are not visible here"
    return HeldGpu(
        gpu=gpu,
        taken=max(by_process, used if elsewhere else 0),
        holders=ordered,
        unseen="" if ordered else f"{unseen} (another container, or just ended)",
    )


def describe(holder: GpuHolder) -> str:
    command = f" `{holder.command}`" if holder.command else " (not visible here)"
    user = f", user {holder.user}" if holder.user else ""
    age = f", up {text.duration(holder.age)}" if holder.age is not None else ""
    memory = f", {text.size(holder.memory)}" if holder.memory is not None else ""
    return f"pid {holder.pid}{command}{user}{age}{memory}"


def free_gpus(gpus: Collection[Gpu], below: float) -> list[Gpu]:
    """Those that a job could use instead."""
    return [
        gpu
        for gpu in gpus
        if not gpu.unread
        and not gpu.mig
        and gpu.compute_mode != "prohibited"
        and held(gpu).share < below
    ]
