"""How much is lost on a directed path, and whether that is more than chance."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.analysis.nodes.paths import PathLoss
from holdfast.analysis.nodes.pattern import Pair

ORDINARY = 0.01
"""a busy machine drops one small datagram in a hundred and nothing is wrong with the network"""
DOUBT = 0.001
"""the chance, over all paths together, to call healthy ones lossy"""


class DirectedLoss(NamedTuple):
    """Packets in one direction, as counted at their arrival."""

    pair: Pair
    sent: int
    lost: int

    @property
    def rate(self) -> float:
        return self.lost / self.sent if self.sent else 0.0

    @property
    def percent(self) -> str:
        return f"{100 * self.rate:.0f} %"


class Losses(NamedTuple):
    """What all nodes saw together: probes on their way there, answers on their way back."""

    by_pair: dict[Pair, DirectedLoss]

    def rate(self, source: str, target: str) -> float:
        found = self.by_pair.get((source, target))
        return found.rate if found else 0.0

    def beyond_chance(self) -> dict[Pair, DirectedLoss]:
        """Those that an ordinary path does not show; more paths make more accidents."""
        doubt = DOUBT / max(1, len(self.by_pair))
        return {
            pair: one
            for pair, one in self.by_pair.items()
            if 0 < one.lost < one.sent and chance(one.lost, one.sent) < doubt
        }


def directed(losses: Iterable[PathLoss]) -> Losses:
    """Per direction: the probes of its source, and its answers to the probes of the other end."""
    sent: dict[Pair, int] = {}
    lost: dict[Pair, int] = {}
    for one in losses:
        if one.source == one.target.node or not one.arrived:
            continue  # nothing arrived, or nothing came back to tell: not a matter of loss
        there, back = (one.source, one.target.node), (one.target.node, one.source)
        for pair, count, missing in (
            (there, one.sent, one.sent - one.arrived),
            (back, one.arrived, one.arrived - one.answered),
        ):
            sent[pair] = sent.get(pair, 0) + count
            lost[pair] = lost.get(pair, 0) + max(0, missing)
    return Losses({pair: DirectedLoss(pair, sent[pair], lost[pair]) for pair in sent})


def chance(lost: int, sent: int, rate: float = ORDINARY) -> float:
    """The probability of losing so many or more on an ordinary path (binomial tail)."""
    below = sum(
        math.comb(sent, k) * rate**k * (1 - rate) ** (sent - k) for k in range(min(lost, sent + 1))
    )
    return max(0.0, 1.0 - below)
