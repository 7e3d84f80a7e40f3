"""What is to be rehearsed, and on which job: what a drill face of a fault is asked with."""

from __future__ import annotations

import msgspec


class DrillPlan(msgspec.Struct, frozen=True, kw_only=True):
    """As asked: `drill.plan(fault="rank-killed", rank=2, at_step=20)`."""

    fault: str
    """'rank-killed', or 'checkpoint-corrupt/truncated' where a fault has several drills"""
    rank: int | None = None
    """None: chosen by what the undisturbed job looked like"""
    at_step: int | None = None


class JobShape(msgspec.Struct, frozen=True, kw_only=True):
    """The job as its undisturbed run showed it, and where it is drilled."""

    ranks: int
    steps: int
    """that the job takes, of its first optimizer step to its last"""
    saved_after: tuple[int, ...] = ()
    """steps after which a checkpoint was there; empty: it saves none"""
    hosts: tuple[str, ...] = ("",)
    """names of the lab's hosts, the store's first; one empty name for this machine alone"""
    on_gpu: bool = False
    """its ranks used GPUs: one that is hidden from them, or of no use to them, is none"""
    patience: float = 8.0
    """seconds, as the runner is told"""
    runner: str = "holdfast"
    seconds_per_step: float = 0.0
    """0: not known"""

    def host_of(self, rank: int) -> str:
        return self.hosts[rank * len(self.hosts) // self.ranks]


class Rehearsal(msgspec.Struct, frozen=True, kw_only=True):
    """One fault on one job, with everything chosen."""

    name: str
    """the drill's: slug, or slug/variant"""
    rank: int
    at_step: int
    """the fault comes when that rank has taken so many steps; 0: before the job is started"""
    job: JobShape

    @property
    def when(self) -> str:
        return f"at step {self.at_step}" if self.at_step else "before the start"
