"""What the nodes' own tries say of the paths that ranks use; pure, from `Scene.probes`."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple, TypeVar

from holdfast.analysis.nodes import Outcome, PathLoss, PathSizes, Reached, loss, path_size
from holdfast.analysis.nodes.islands import Island, islands
from holdfast.analysis.nodes.loss import DirectedLoss, Losses
from holdfast.analysis.nodes.path_size import SizeJudgement
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.nodes.reachability import NOT_REACHED
from holdfast.analysis.scene.scene import Scene

_T = TypeVar("_T", Reached, PathSizes)


class Tried(NamedTuple):
    """One path, in one direction."""

    pair: Pair
    connects: tuple[Reached, ...]
    sizes: tuple[SizeJudgement, ...]
    loss: DirectedLoss | None
    """beyond chance"""

    @property
    def failed(self) -> bool:
        """Not one connect passed."""
        return bool(self.connects) and all(one.outcome in NOT_REACHED for one in self.connects)

    @property
    def passes(self) -> bool:
        return any(one.outcome is Outcome.OK for one in self.connects)


def tried(scene: Scene, pair: Pair, addresses: Collection[str] = ()) -> Tried | None:
    """None where this path was not tried. `addresses`: of the target, as the ranks use them; tries
    of its other addresses count only where these were not tried."""
    if scene.probes is None:
        return None
    connects = [one for one in scene.probes.reach if _pair(one) == pair]
    sizes = [one for one in scene.probes.sizes if _pair(one) == pair]
    if not connects and not sizes:
        return None
    losses = scene.memo(_losses)
    return Tried(
        pair=pair,
        connects=tuple(_of(addresses, connects)),
        sizes=tuple(
            path_size.judge(one, None, losses.rate(*pair), losses.rate(pair[1], pair[0]))
            for one in _of(addresses, sizes)
        ),
        loss=scene.memo(_lossy).get(pair),
    )


def began(scene: Scene) -> float:
    """When these tries began; 0 where there are none."""
    return scene.probes.at if scene.probes else 0.0


def found_islands(scene: Scene) -> list[Island]:
    """Groups of nodes between which nothing passed, either way; only of paths that were tried."""
    reach = scene.probes.reach if scene.probes else ()
    pairs = {_pair(one) for one in reach}
    failed = {pair for pair in pairs if (seen := tried(scene, pair)) and seen.failed}
    return islands((node.name for node in scene.nodes), failed, pairs)


def _losses(scene: Scene) -> Losses:
    return loss.directed(scene.probes.losses if scene.probes else ())


def _lossy(scene: Scene) -> dict[Pair, DirectedLoss]:
    return scene.memo(_losses).beyond_chance()


def _pair(one: Reached | PathSizes | PathLoss) -> Pair:
    return one.source, one.target.node


def _of(addresses: Collection[str], tries: list[_T]) -> list[_T]:
    return [one for one in tries if one.target.address in addresses] or tries
