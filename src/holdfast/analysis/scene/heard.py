"""Which ranks are known now: not heard is not silent. Pure.

What a node said last is as old as its last report. While it is late or lost its ranks are unknown:
neither stuck nor frozen nor slow, and no verdict rests on where they were. So all but the faults of
nodes judge a job without them.
"""

from __future__ import annotations

import msgspec

from holdfast.analysis.scene.node_view import NodeView
from holdfast.analysis.scene.scene import Scene


def late_nodes(scene: Scene) -> tuple[NodeView, ...]:
    """They may come back: their lease is not over."""
    return tuple(node for node in scene.nodes if node.hearing == "late")


def unheard_ranks(scene: Scene) -> frozenset[int]:
    """Of nodes that are late or lost."""
    return scene.memo(_unheard_ranks)


def _unheard_ranks(scene: Scene) -> frozenset[int]:
    return frozenset(r for node in scene.nodes if node.hearing != "heard" for r in node.ranks)


def known_part(scene: Scene) -> Scene:
    """The same job without the ranks that are not heard, or were never reported: they are missing
    from it."""
    return scene.memo(_known_part)


def _known_part(scene: Scene) -> Scene:
    unheard = unheard_ranks(scene)
    known = tuple(view for view in scene.ranks if view.rank not in unheard)
    missing = len(scene.ranks) - len(known)
    if scene.world is None:
        reported = {view.rank for view in scene.ranks}
        missing += sum(rank not in reported for node in scene.nodes for rank in node.ranks)
    if not missing:
        return scene
    return msgspec.structs.replace(
        scene,
        ranks=known,
        world=scene.world or "",
        missing_members=scene.missing_members + missing,
    )
