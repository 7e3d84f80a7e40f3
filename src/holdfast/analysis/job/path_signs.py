"""What the kernels' counters of the ranks' own connections say of the paths between nodes. Pure.

Only of paths whose both ends are heard: of a node that is late or lost, everything that is sent to
it stays unanswered, and that is another fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import loss
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.scene.node_view import NodeView, RankConnection
from holdfast.analysis.scene.scene import Scene

STUCK = 3
"""times in a row that TCP got no answer: with jitter, or on a busy machine, it may be twice"""
LOSSY = 0.02
"""of the segments: a busy network loses less"""
CHANCE = 1e-4
"""that an ordinary path (`loss.ORDINARY`) shows as much loss in one look"""


class KernelSign(NamedTuple):
    """One direction, as its sender sees it: what gets lost may be its data, or the answers."""

    pair: Pair
    stuck: tuple[RankConnection, ...]
    """connections that get no answer any more, the longest first"""
    retransmitted: int
    sent: int
    came: int
    """segments that came the other way on silent connections since they are silent"""

    @property
    def unanswered(self) -> float:
        """Seconds."""
        return max((one.unanswered for one in self.stuck), default=0.0)

    @property
    def lost(self) -> float:
        """The share that was sent again; a little more than what was lost."""
        return self.retransmitted / self.sent if self.sent else 0.0

    @property
    def lossy(self) -> bool:
        sent, lost = self.sent, min(self.retransmitted, self.sent)
        return self.lost >= LOSSY and sent > 0 and loss.chance(lost, sent) < CHANCE

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({one.rank for one in self.stuck}))

    @property
    def addresses(self) -> str:
        """'10.1.0.2 → 10.1.0.3'; '' where none is stuck."""
        return f"{self.stuck[0].local} → {self.stuck[0].peer}" if self.stuck else ""


def connections(node: NodeView) -> tuple[RankConnection, ...]:
    seen = node.connections
    return () if seen is None or isinstance(seen, Unread) else seen


def of(scene: Scene) -> Mapping[Pair, KernelSign]:
    """Of every path that a rank has a connection on."""
    return scene.memo(_of)


def _of(scene: Scene) -> dict[Pair, KernelSign]:
    heard = {node.name: node for node in scene.nodes if node.hearing == "heard"}
    by_pair: dict[Pair, list[RankConnection]] = {}
    for name, node in heard.items():
        for one in connections(node):
            if one.node in heard and one.node != name:
                by_pair.setdefault((name, one.node), []).append(one)
    return {pair: _sign(pair, seen) for pair, seen in by_pair.items()}


def _sign(pair: Pair, seen: list[RankConnection]) -> KernelSign:
    stuck = [one for one in seen if one.backoff >= STUCK and (one.unsent or one.connecting)]
    return KernelSign(
        pair=pair,
        stuck=tuple(sorted(stuck, key=lambda one: -one.unanswered)),
        retransmitted=sum(one.retransmitted for one in seen),
        sent=sum(one.sent for one in seen),
        came=sum(one.arrived for one in stuck),
    )
