"""Which paths between nodes to try now, by an active probe: few, and only while the job stalls."""

from __future__ import annotations

from holdfast.analysis.collectives import waits
from holdfast.analysis.job import pace, path_signs
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.scene.scene import Scene

MOST = 8
"""paths that are tried at once"""
ALL_WAIT = 5.0
"""seconds without a step before paths are tried of which the kernel tells nothing"""


def find(scene: Scene, *, timers_since: float = 0.0) -> tuple[Pair, ...]:
    """(from, to), the worst first; () while nothing points at the network."""
    signs = path_signs.of(scene)
    worst = sorted(
        (one for one in signs.values() if one.stuck or one.lossy),
        key=lambda one: (not one.stuck, -one.unanswered, -one.lost, one.pair),
    )
    if worst:
        return tuple(one.pair for one in worst[:MOST])
    if pace.stalled(scene, timers_since=timers_since) and _all_wait(scene, timers_since):
        return _unseen(scene)
    return ()


def _all_wait(scene: Scene, timers_since: float) -> bool:
    """Every living rank is in a collective that all of them have entered: no rank is missing."""
    if scene.now - pace.last_progress(scene, timers_since=timers_since) < ALL_WAIT:
        return False
    seen = waits.analyse(scene)
    living = {view.rank for view in scene.ranks if view.death is None}
    waiting = {one.rank for one in seen.waits}
    return bool(living) and waiting == living and not seen.roots and not seen.mismatch


def _unseen(scene: Scene) -> tuple[Pair, ...]:
    """Around the ring of nodes, which is how most collectives go; only of nodes whose kernel does
    not tell of their connections, or whose ranks talk by other means than TCP."""
    names = [node.name for node in scene.nodes]
    ring = zip(names, [*names[1:], *names[:1]], strict=True)
    blind = {node.name for node in scene.nodes if not path_signs.connections(node)}
    heard = {node.name for node in scene.nodes if node.hearing == "heard"}
    return tuple(
        pair
        for pair in dict.fromkeys(ring)
        if pair[0] != pair[1] and set(pair) <= heard and not blind.isdisjoint(pair)
    )[:MOST]
