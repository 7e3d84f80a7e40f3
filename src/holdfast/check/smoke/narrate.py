"""The lines that report the progress of the smoke test. Pure."""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.machine import Smoke, SmokeRound
from holdfast.analysis.machine.nccl_links import in_words
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
    top = smoke.top_rung(name)
    speed = ""
    if top:
        speed = (
            f"; sums are right from 1 KiB to {text.size(top.size)}, "
            f"top rung {top.seconds:.3f} s, bus {top.bandwidth / 1e9:.2f} GB/s"
        )
    return f"{name}: ok in {stage.seconds:.2f} s{speed}"


def round_line(one: SmokeRound) -> str:
    """How NCCL did without its faster transports."""
    if one.status != "ok":
        return f"transport {one.name}: {one.status}: {one.reason}"
    speed = f", {text.bandwidth(one.bandwidth)}" if one.bandwidth else ""
    return f"transport {one.name}: ok in {one.seconds:.2f} s by {in_words(one.links)}{speed}"
