"""What the kernels' counters of the ranks' own connections say of the paths between nodes. Pure.

Only of paths whose both ends are heard: of a node that is late or lost, everything that is sent to
it stays unanswered, and that is another fault.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes.pattern import Pair
from holdfast.analysis.scene.node_view import NodeView, RankConnection
from holdfast.analysis.scene.scene import Scene

STUCK = 3
"""times in a row that TCP got no answer: with jitter, or on a busy machine, it may be twice"""
LOSSY = 0.02
"""of the segments: a busy network loses less"""
FEW = 2
"""segments sent again in one look that mean nothing, however little was sent"""


class KernelSign(NamedTuple):
    """One direction, as its sender sees it: what gets lost may be its data, or the answers."""

    pair: Pair
    addresses: tuple[str, str]
    """of both ends, as the ranks use them"""
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
        """Worth a try: a jump in latency makes TCP send again too."""
        return self.retransmitted > FEW and self.lost >= LOSSY

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted({one.rank for one in self.stuck}))


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
    stuck.sort(key=lambda one: -one.unanswered)
    first = (stuck or seen)[0]
    return KernelSign(
        pair=pair,
        addresses=(first.local, first.peer),
        stuck=tuple(stuck),
        retransmitted=sum(one.retransmitted for one in seen),
        sent=sum(one.sent for one in seen),
        came=sum(one.arrived for one in stuck),
    )
