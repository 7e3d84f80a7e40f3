"""Ranks whose GPU failed under them: by the driver, its lines in the kernel log, its counters."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.job import rank_gpus
from holdfast.analysis.logs import xid_table
from holdfast.analysis.logs.xid_table import Xid, XidBlame
from holdfast.analysis.scene import surroundings
from holdfast.analysis.scene.gpu import GpuEvent
from holdfast.analysis.scene.scene import Scene

NAMES_A_CAUSE = 0.85
"""confidence of an Xid from which on no program can be blamed for it"""
FELL_OFF_THE_BUS = 79


class FailedGpu(NamedTuple):
    rank: int
    what: str
    """'Xid 79: the GPU fell off the bus…'"""
    lost: bool
    """the driver cannot reach it: nothing on it can go on, and nothing else can start there"""
    action: str = ""
    """what NVIDIA says to do for that Xid; '' where there was none"""


def find(scene: Scene) -> tuple[FailedGpu, ...]:
    """Nothing here means only that nothing was seen."""
    found = (_of_rank(scene, view.rank) for view in scene.ranks)
    failed = [one for one in found if one is not None]
    # One GPU of several that fails takes its neighbours' links along: the lost one is the cause.
    return tuple([one for one in failed if one.lost] or failed)


def _of_rank(scene: Scene, rank: int) -> FailedGpu | None:
    gpu = rank_gpus.gpu_of(scene, rank)
    causes = [event for event in rank_gpus.events_of(scene, rank) if is_hardware(event)]
    index = str(gpu.index) if gpu else "N"
    action = _judged(causes[0]).advice(index) if causes else ""
    if gpu is not None and gpu.lost:
        said = f": {_words(causes[0])}" if causes else ""
        what = f"the driver lost GPU {gpu.index} ({gpu.lost}){said}"
        return FailedGpu(rank, what, lost=True, action=action)
    name = f"GPU {gpu.index}" if gpu else f"GPU {causes[0].bus_id}" if causes else ""
    if causes:
        lost = causes[0].number == FELL_OFF_THE_BUS
        return FailedGpu(rank, f"{name} failed: {_words(causes[0])}", lost, action)
    if gpu is not None and gpu.new_uncorrected and not _shared(scene, rank):
        errors = f"{gpu.new_uncorrected} memory errors that ECC could not correct"
        return FailedGpu(rank, f"{name} had {errors} since the job started", lost=False)
    return None


def is_hardware(event: GpuEvent) -> bool:
    known = _judged(event)
    return known.blame in (XidBlame.HARDWARE, XidBlame.DRIVER) and known.confidence >= NAMES_A_CAUSE


def _words(event: GpuEvent) -> str:
    return f"Xid {event.number}, {_judged(event).meaning}"


def _judged(event: GpuEvent) -> Xid:
    return xid_table.judge(event.number, event.line)


def _shared(scene: Scene, rank: int) -> bool:
    """Several ranks on one GPU: whose memory was hit is not known."""
    own = rank_gpus.gpu_of(scene, rank)
    beside = surroundings.on_its_machine(scene, rank)
    return any(v.rank != rank and rank_gpus.gpu_of(scene, v.rank) == own for v in beside)
