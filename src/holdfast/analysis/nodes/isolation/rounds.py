"""Which pairs to test next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.analysis.nodes.isolation.evidence import MAX_ROUNDS, IsolationEvidence, weigh
from holdfast.analysis.nodes.isolation.racks import whole_racks
from holdfast.analysis.nodes.isolation.results import IsolationState

FEW_NODES = 4
"""with so few, three rounds test every pair there is"""


def plan_round(state: IsolationState) -> tuple[tuple[str, str], ...]:
    """Pairs that share no node; none when there is nothing left to learn."""
    if not state.rounds:
        return tuple(_across(state, state.nodes))
    evidence = weigh(state)
    if _is_over(evidence):
        return ()
    chosen = _Round(evidence)
    if evidence.cleared_by:
        chosen.test_with_cleared(evidence.open)
    chosen.test_among(evidence.open)
    for pair in _once_more(evidence):
        (before,) = evidence.not_fine[pair]
        chosen.take(before.second, before.first)  # the other way round: who serves may matter
    for members in _racks_to_confirm(evidence):
        chosen.test_among(members)
    return tuple(chosen.pairs)


def _across(state: IsolationState, names: Sequence[str]) -> Iterable[tuple[str, str]]:
    """Neighbours in the list share a rack or a switch: pair each with one half a list away. So no
    pair is within a rack while no rack has more than half of the nodes."""
    ordered = sorted(names, key=lambda name: state.racks.get(name, ""))
    half = len(ordered) // 2
    return zip(ordered[:half], ordered[half : 2 * half], strict=True)


def _is_over(evidence: IsolationEvidence) -> bool:
    rounds = len(evidence.state.rounds)
    if not evidence.cleared_by:
        return rounds >= (3 if len(evidence.present) <= FEW_NODES else 2)
    return rounds >= MAX_ROUNDS or len(evidence.bad) > evidence.limit


def _once_more(evidence: IsolationEvidence) -> list[frozenset[str]]:
    """Pairs whose ends are fine with others, tested once. Where one end has several of them it is
    that end's own trouble, which a second test would not explain."""
    return [
        pair
        for pair in evidence.questioned
        if len(evidence.not_fine[pair]) == 1 and not pair & evidence.unsteady
    ]


def _racks_to_confirm(evidence: IsolationEvidence) -> list[list[str]]:
    """Before all nodes of a rack are called bad: do they pass among themselves? Then it is the
    rack's way out."""
    return [
        nodes
        for nodes in whole_racks(evidence, evidence.blamed).values()
        if not any(evidence.met[name] & {*nodes} for name in nodes)
    ]


class _Round:
    """The pairs of one round, as they are chosen: each node once."""

    def __init__(self, evidence: IsolationEvidence) -> None:
        self.evidence = evidence
        self.pairs: list[tuple[str, str]] = []
        self.busy: set[str] = set()

    def take(self, one: str, other: str) -> bool:
        if one in self.busy or other in self.busy:
            return False
        self.pairs.append((one, other))
        self.busy |= {one, other}
        return True

    def test_with_cleared(self, suspects: Iterable[str]) -> None:
        """Each with a cleared node that it has not met; those with the cleanest record first, and
        from another rack where there is one."""
        evidence = self.evidence
        wanted = {name for pair in _once_more(evidence) for name in pair}
        partners = sorted(
            (name for name in evidence.present if evidence.passes(name)),
            key=lambda name: (len(evidence.accusers.get(name, ())), name in wanted),
        )
        failed_first = sorted(suspects, key=lambda name: name in evidence.best)
        for name in failed_first:
            free = [p for p in partners if p not in self.busy and p not in evidence.met[name]]
            elsewhere = next((p for p in free if self._rack(p) != self._rack(name)), None)
            if free:  # the cleared one first: it serves the store
                self.take(elsewhere or free[0], name)

    def test_among(self, names: Sequence[str]) -> None:
        """With each other, pairs that have not met; within a rack first, since the first round
        went across."""
        left = sorted((n for n in names if n not in self.busy), key=self._rack)
        while left:
            name = left.pop(0)
            partner = next((p for p in left if p not in self.evidence.met[name]), None)
            if partner is not None:
                self.take(name, partner)
                left.remove(partner)

    def _rack(self, name: str) -> str:
        return self.evidence.state.racks.get(name, "")
