"""Which paths between nodes to try now, by an active probe: few, and only while the job stalls."""

from __future__ import annotations

from holdfast.analysis.collectives import waits
from holdfast.analysis.job import pace, path_probes, path_signs, sick_paths
from holdfast.analysis.job.sick_paths import SickPath
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.scene.scene import Scene

MOST = 8
"""paths that are tried at once"""
AGAIN = 10.0
"""seconds before a path is tried again that showed nothing, or whose connections stay silent"""
LOSSY_AGAIN = 30.0
"""seconds before a path that is known to lose packets is tried again"""
ALL_WAIT = 5.0
"""seconds without a step before paths are tried of which the kernel tells nothing"""


def find(scene: Scene, *, timers_since: float = 0.0) -> tuple[Pair, ...]:
    """(from, to), the worst first; () while nothing points at the network, or all of it was tried
    lately. The caller has one such question under way at a time."""
    silent = [one for one in sick_paths.of(scene) if _is_due(scene, one)]
    lossy = [one for one in path_signs.of(scene).values() if one.lossy and not one.stuck]
    lossy = [one for one in sorted(lossy, key=lambda one: -one.lost) if _is_new(scene, one.pair)]
    worst = [*(one.pair for one in silent), *(one.pair for one in lossy)]
    if worst:
        # The way back as well: one direction alone may be broken.
        return tuple(dict.fromkeys(w for pair in worst for w in (pair, pair[::-1])))[:MOST]
    if pace.stalled(scene, timers_since=timers_since) and all_wait(
        scene, timers_since=timers_since
    ):
        return tuple(pair for pair in unseen(scene) if _is_new(scene, pair))[:MOST]
    return ()


def _is_due(scene: Scene, one: SickPath) -> bool:
    if one.tried is None:
        return True
    if one.tried.failed and not one.tried_late:
        return scene.now >= one.since + sick_paths.TRY_AFTER
    return scene.now - path_probes.began(scene) >= AGAIN


def _is_new(scene: Scene, pair: Pair) -> bool:
    ago = scene.now - path_probes.began(scene)
    ways = [path_probes.tried(scene, way) for way in (pair, pair[::-1])]
    if ways[0] is None:
        return True
    return ago >= (LOSSY_AGAIN if any(one and one.loss for one in ways) else AGAIN)


def all_wait(scene: Scene, *, timers_since: float = 0.0) -> bool:
    """Every living rank is in a collective that all of them have entered: no rank is missing."""
    if scene.now - pace.last_progress(scene, timers_since=timers_since) < ALL_WAIT:
        return False
    seen = waits.analyse(scene)
    living = {view.rank for view in scene.ranks if view.death is None}
    waiting = {one.rank for one in seen.waits}
    return bool(living) and waiting == living and not seen.roots and not seen.mismatch


def unseen(scene: Scene) -> tuple[Pair, ...]:
    """Around the ring of nodes, which is how most collectives go; only of nodes whose kernel does
    not list their connections, or whose ranks talk by other means than TCP."""
    names = [node.name for node in scene.nodes]
    ring = zip(names, [*names[1:], *names[:1]], strict=True)
    blind = {node.name for node in scene.nodes if not path_signs.connections(node)}
    heard = {node.name for node in scene.nodes if node.hearing == "heard"}
    return tuple(
        pair
        for pair in dict.fromkeys(ring)
        if pair[0] != pair[1] and set(pair) <= heard and not blind.isdisjoint(pair)
    )
