"""Ranks that others wait for besides those that a verdict names. Pure."""

from __future__ import annotations

from collections.abc import Collection

from holdfast.analysis.collectives import waits, worlds
from holdfast.analysis.job import pace, stall
from holdfast.analysis.scene import stopped
from holdfast.analysis.scene.scene import Recorder, Scene


def of_scene(scene: Scene, named: Collection[int], *, one_of: bool) -> tuple[int, ...]:
    """Two ranks may stall a job at once, each for its own reason. As for a stall, what waits but
    briefly does not count. `one_of`: not all of those named did it."""
    found: set[int] = set()
    for part in worlds.parts(scene):
        seen = waits.analyse(part)
        waited = max((wait.seconds for wait in seen.waits), default=0.0)
        if scene.now - pace.last_progress(part) < stall.LONG_ENOUGH or waited < stall.WAITS:
            continue
        recorded = {view.rank for view in part.ranks if isinstance(view.recorder, Recorder)}
        own = {view.rank for view in stopped.stopped_ranks(part)}
        own |= recorded.intersection(() if seen.one_of else seen.roots)
        if seen.mismatch:  # then ranks wait for each other as a result
            own |= set(() if seen.mismatch.undecided else seen.mismatch.odd)
        elif seen.detour and not seen.detour.undecided:
            own |= set(seen.detour.ranks)
        died = any(view.rank in named and view.death for view in part.ranks)
        if one_of or died or not own.isdisjoint(named):
            found |= own
    return tuple(sorted(found.difference(named)))
