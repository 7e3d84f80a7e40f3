"""The lines that report the progress of the smoke test. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.machine import Smoke
from holdfast.check.smoke.stages import STAGES, Record


def rank_line(record: Record, world: int) -> str:
    """What a rank says of itself when it is up."""
    return (
        f"[rank {record.rank}/{world}] pid {record.pid} device {record.device} "
        f"master {record.master} (torch imported in {record.seconds:.1f} s)"
    )


def progress_line(stage: str, missing: Sequence[int]) -> str:
    purpose = " to import torch" if stage == STAGES[0] else ""
    return f"{stage}: waiting for {text.ranks(missing)}{purpose}"


def stage_line(smoke: Smoke, name: str) -> str:
    """One stage's result, with the speed it reached at the top of its ladder."""
    stage = next(stage for stage in smoke.stages if stage.name == name)
    if stage.status != "ok":
        return f"{name}: {stage.status}: {stage.reason}"
    rungs = [rung for rung in smoke.ladder if rung.stage == name]
    top = max(rungs, key=lambda rung: rung.size, default=None)
    speed = ""
    if top:
        speed = (
            f"; sums are right from 1 KiB to {text.size(top.size)}, "
            f"top rung {top.seconds:.3f} s, bus {top.bandwidth / 1e9:.2f} GB/s"
        )
    return f"{name}: ok in {stage.seconds:.2f} s{speed}"
