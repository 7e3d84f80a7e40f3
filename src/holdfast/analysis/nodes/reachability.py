"""Which node reaches which: the connects of all nodes as one matrix of directed paths."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import NamedTuple

from holdfast.analysis.machine import CouldNotLook, known
from holdfast.analysis.nodes import islands as connected
from holdfast.analysis.nodes.facts import NodesFacts
from holdfast.analysis.nodes.islands import Island
from holdfast.analysis.nodes.paths import Outcome, PortKind, Reached
from holdfast.analysis.nodes.pattern import Pair

NOT_REACHED = frozenset(Outcome) - {Outcome.OK, Outcome.STRANGER, Outcome.OWN_ADDRESS}
"""the last two are a matter of addresses: duplicate-identity and wrong-nic speak of them"""


class Matrix(NamedTuple):
    """The connects between different nodes, by pair of source and target."""

    by_pair: dict[Pair, tuple[Reached, ...]]

    @property
    def nodes(self) -> tuple[str, ...]:
        return tuple(sorted({name for pair in self.by_pair for name in pair}))

    def failed(self) -> dict[Pair, tuple[Reached, ...]]:
        """Pairs without any connect that passed, whichever address and port was tried."""
        return {
            pair: tries
            for pair, tries in self.by_pair.items()
            if all(one.outcome in NOT_REACHED for one in tries)
        }

    def of_kind(self, kind: PortKind) -> Matrix:
        return self.where(lambda one: one.target.kind is kind)

    def to_addresses(self, wanted: Collection[str]) -> Matrix:
        return self.where(lambda one: one.target.address in wanted)

    def where(self, wanted: Callable[[Reached], bool]) -> Matrix:
        kept = {pair: tuple(filter(wanted, tries)) for pair, tries in self.by_pair.items()}
        return Matrix({pair: tries for pair, tries in kept.items() if tries})

    def without(self, pairs: Collection[Pair]) -> Matrix:
        return Matrix({pair: tries for pair, tries in self.by_pair.items() if pair not in pairs})


def matrix(facts: NodesFacts) -> Matrix:
    """Every connect between two nodes that are here; stops the check where none could be tried."""
    here = {node.name for node in facts.nodes}
    by_pair: dict[Pair, list[Reached]] = {}
    for one in known(facts.reach):
        if one.source != one.target.node and {one.source, one.target.node} <= here:
            by_pair.setdefault((one.source, one.target.node), []).append(one)
    if not by_pair:
        raise CouldNotLook("no path between two nodes was tried")
    return Matrix({pair: tuple(sorted(tries, key=_order)) for pair, tries in by_pair.items()})


def _order(one: Reached) -> tuple[str, str, int]:
    return one.target.address, one.target.kind.value, one.target.port


def islands(paths: Matrix) -> list[Island]:
    """Groups of nodes between which nothing passes, the largest first."""
    return connected.islands(paths.nodes, paths.failed(), paths.by_pair)
