"""Ranks that are still in a section whose deadline (holdfast.deadline) has passed. Pure."""

from __future__ import annotations

from holdfast.analysis.scene import heard
from holdfast.analysis.scene.scene import RankView, Scene

LEEWAY = 0.1
"""seconds past the deadline: a section that ended on time has said so by then"""


def overrun_ranks(scene: Scene) -> tuple[RankView, ...]:
    """Living ranks in a section whose deadline has passed, except those held by a debugger, and
    those on a node that is not heard: they may have left it long ago."""
    return tuple(
        view
        for view in heard.known_part(scene).ranks
        if view.beat is not None
        and view.beat.limit_until
        and scene.now - view.beat.limit_until >= LEEWAY
        and view.death is None
        and view.words is None
        and not (view.activity is not None and view.activity.state == "t")
    )
