"""Scenes of ranks that are ready to run and get no core."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.analysis.scene.cpu import CpuLook, Neighbour, Processor
from holdfast.analysis.scene.scene import Scene
from tests.run.scenes import NOW, a_beat, a_rank, a_scene, changed

FFMPEG = Neighbour(pid=812, name="ffmpeg", command="ffmpeg -i talk.mkv", cores=1.8)


def a_processor(**changes: Any) -> Processor:
    usual: dict[str, Any] = {
        "cores": 2, "quota": None, "throttled": None, "pressure": 71.0, "load": 5.5,
        "strangers": 1, "taken": 1.8, "neighbours": (FFMPEG,),
    }  # fmt: skip
    return Processor(**{**usual, **changes})


def looks(got: float, *, asked: float = 1.0, seconds: int = 20) -> tuple[CpuLook, ...]:
    """Once a second up to now: so many cores were wanted, and this share of them was had."""
    return tuple(
        CpuLook(at=NOW - seconds + n, ran=n * asked * got, queued=n * asked * (1 - got))
        for n in range(seconds + 1)
    )


def slower(shares: Mapping[int, float], *, step: float = 0.2, **changes: Any) -> Scene:
    """Steps go on, each of `step` seconds where 0.05 s was usual; ranks got these shares."""
    beat = a_beat(usual_step=step, step_at=NOW - step / 2)
    views = [a_rank(rank, beat=beat, looks=looks(got)) for rank, got in shares.items()]
    usual = {"best_step": 0.05, "processor": a_processor(), "evidence_at": NOW - 0.1}
    return a_scene(views, **{**usual, **changes})


def starved(scene: Scene, shares: Mapping[int, float], **changes: Any) -> Scene:
    """The same scene, in which these ranks got so much of what they asked for."""
    for rank, got in shares.items():
        scene = changed(scene, rank, looks=looks(got))
    return msgspec.structs.replace(scene, **{"processor": a_processor(), **changes})
