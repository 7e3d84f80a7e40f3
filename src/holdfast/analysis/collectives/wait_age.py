"""For how long a rank had waited when the evidence was taken."""

from __future__ import annotations

from holdfast.analysis.collectives import gpu_side
from holdfast.analysis.collectives.gpu_side import is_message
from holdfast.analysis.collectives.positions import Wait
from holdfast.analysis.scene.scene import RankView, Recorder, Scene

COARSE = 2.0
"""seconds that a rank may seem silent while it is not: counters are read once a second, and taking
evidence of a busy machine takes another"""


def age(scene: Scene, view: RankView, recorder: Recorder | None, wait: Wait) -> float:
    """Since it entered that (group, sequence), by its recorder: waiting NCCL ranks keep a core
    busy, so silence would never count for them. Where only its stack shows the wait, since it
    fell silent, and no longer than since it last began any collective; where no recorder knows
    of the wait at all, since that, for nothing else can have come in between. A GPU comes to a
    collective long after the script asked for it, but not before it has finished the last one.

    Recorders keep wall time, and a wall clock may be stepped: no wait is older than the rank's
    last step, its group or its start, which are monotonic."""
    return min(_seen_age(scene, view, recorder, wait), _oldest(scene, view))


def _oldest(scene: Scene, view: RankView) -> float:
    beat = view.beat
    since = [scene.started_at]
    if beat is not None:
        since += [beat.step_at, beat.claim.at if beat.claim else 0.0]
    return max(0.0, (scene.evidence_at or scene.now) - max(since))


def _seen_age(scene: Scene, view: RankView, recorder: Recorder | None, wait: Wait) -> float:
    recorded = () if recorder is None else (*recorder.collectives, *recorder.messages)
    silent = max(0.0, (scene.evidence_at or scene.now) - view.alive_at - COARSE)
    begun = [c.created for c in recorded if c.created]
    if not scene.evidence_wall or not begun:
        return silent
    for c in recorded:
        if c.sequence != wait.sequence or c.group != wait.group:
            continue
        if c.created and c.started is not False and is_message(c) == wait.is_message:
            last = gpu_side.last_end(recorder) if recorder and wait.on_gpu else 0.0
            recorded_age = scene.evidence_wall - max(c.created, last)
            return silent if recorded_age < 0 else recorded_age  # the wall clock was set back
    unrecorded = scene.evidence_wall - max(begun)
    return max(0.0, unrecorded if wait.alone else min(silent, unrecorded))
