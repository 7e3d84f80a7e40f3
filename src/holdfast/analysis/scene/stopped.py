"""Ranks whose process is stopped, by a signal or by a debugger. Pure."""

from __future__ import annotations

from holdfast.analysis.scene.scene import RankView, Scene

LONG_ENOUGH = 3.0
"""seconds in state T; a shell's job control or a tool that stops a process for a look is shorter"""


def stopped_ranks(scene: Scene) -> list[RankView]:
    """Ranks in state T for long enough; where there are none, ranks held by a debugger (t)."""
    return _in_state(scene, "T") or _in_state(scene, "t")


def _in_state(scene: Scene, letter: str) -> list[RankView]:
    return [
        v
        for v in scene.ranks
        if v.activity is not None
        and v.death is None
        and v.activity.state == letter
        and scene.now - v.state_since >= LONG_ENOUGH
    ]
