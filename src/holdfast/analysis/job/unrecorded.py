"""Jobs whose collectives no flight recorder shows, since they run inside CUDA graphs."""

from __future__ import annotations

from holdfast.analysis.collectives import groups, waits
from holdfast.analysis.job import pace
from holdfast.analysis.scene.scene import Scene

LONG_ENOUGH = 10.0
"""seconds without a step before it is worth a word: no rank is named by it"""
STEPS = 3
"""that went by without a record: a graph is replayed, not captured"""


def is_blind(scene: Scene) -> bool:
    """Nothing moves, the recorders show no wait, and had stopped while steps went on."""
    beats = [v.beat for v in scene.ranks if v.beat is not None and v.death is None]
    seen = waits.analyse(scene)
    if not any(beat.cuda_graphs for beat in beats) or not scene.evidence_wall or seen.mismatch:
        return False
    if seen.roots or seen.deadlock or any(wait.absent or wait.gone for wait in seen.waits):
        return False
    last_step = pace.last_progress(scene)
    if scene.now - last_step < LONG_ENOUGH:
        return False
    newest = max(
        (c.created for r in groups.of(scene).values() for c in (*r.collectives, *r.messages)),
        default=0.0,
    )
    stepped = scene.evidence_wall - (scene.evidence_at - last_step)
    return bool(newest) and stepped - newest > STEPS * pace.usual_step(scene)
