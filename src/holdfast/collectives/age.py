"""For how long a rank had waited when the evidence was taken."""

from __future__ import annotations

from holdfast.signals import RankView, Recorder, Scene

COARSE = 2.0
"""seconds that a rank may seem silent while it is not: counters are read once a second, and taking
evidence of a busy machine takes another"""


def age(
    scene: Scene, view: RankView, recorder: Recorder | None, position: tuple[str, int]
) -> float:
    """Since it entered that (group, sequence), by its recorder: waiting NCCL ranks keep a core
    busy, so silence would never count for them. Where only its stack shows the wait, since it
    fell silent, and no longer than since it last began any collective."""
    recorded = recorder.collectives if recorder else ()
    silent = max(0.0, (scene.evidence_at or scene.now) - view.alive_at - COARSE)
    begun = [c.created for c in recorded if c.created]
    if not scene.evidence_wall or not begun:
        return silent
    for c in recorded:
        if c.created and (c.group, c.sequence) == position:
            return max(0.0, scene.evidence_wall - c.created)
    return max(0.0, min(silent, scene.evidence_wall - max(begun)))
