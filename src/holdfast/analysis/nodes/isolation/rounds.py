"""Which pairs to test next."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.analysis.nodes.isolation.evidence import MAX_ROUNDS, IsolationEvidence
from holdfast.analysis.nodes.isolation.results import IsolationState
from holdfast.analysis.nodes.isolation.speeds import suspected

FEW_NODES = 4
"""with so few, three rounds test every pair there is"""


def plan_round(state: IsolationState) -> tuple[tuple[str, str], ...]:
    """Pairs that share no node; none when there is nothing left to learn."""
    if not state.rounds:
        return tuple(_across(state, state.nodes))
    works = IsolationEvidence(state)
    if _is_over(works):
        return ()
    pairs = _next(works, ())
    speed = suspected(state)
    return _next(speed, pairs) if not speed.vary else pairs


def _next(
    evidence: IsolationEvidence, taken: tuple[tuple[str, str], ...]
) -> tuple[tuple[str, str], ...]:
    """What would say more, besides what is taken already."""
    chosen = _Round(evidence, taken)
    for members in _strange_racks(evidence):
        chosen.test_among(members)
    if evidence.cleared_by:
        chosen.test_with_cleared(evidence.open)
    chosen.test_among(evidence.open)
    for rack in _doubtful_racks(evidence):
        chosen.send_out(rack)
    for pair in _once_more(evidence):
        (before,) = evidence.not_fine[pair]
        chosen.take(before.second, before.first)  # the other way round: who serves may matter
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
    return rounds >= MAX_ROUNDS or len(evidence.blamed) > evidence.limit


def _once_more(evidence: IsolationEvidence) -> list[frozenset[str]]:
    """Pairs whose ends are fine with others, tested once. Where one end has several of them it is
    that end's own trouble, which a second test would not explain."""
    return [
        pair
        for pair in evidence.questioned
        if len(evidence.not_fine[pair]) == 1 and not pair & evidence.unsteady
    ]


def _strange_racks(evidence: IsolationEvidence) -> list[list[str]]:
    """Racks of which no node passes yet: do they pass among themselves? Then it is the rack's way
    out."""
    suspects = {*evidence.open}
    return [
        sorted(members & suspects)
        for members in evidence.by_rack.values()
        if not any(map(evidence.passes, members))
        and any(map(evidence.wants_mates, members & suspects))
    ]


def _doubtful_racks(evidence: IsolationEvidence) -> list[str]:
    """Racks that pass at home and failed with others, but with none that passes across racks: is it
    their own way out?"""
    home = {evidence.rack(name) for name in evidence.cleared_by} - evidence.reach_out - {""}
    ends = [{*map(evidence.rack, pair)} for pair in evidence.not_fine]
    failed = {rack for pair in ends if len(pair) > 1 for rack in pair}
    enough = evidence.reach_out or home  # where no rack reaches out, one failure is all there is
    return [rack for rack in sorted(home & failed) if not _tried(evidence, rack) & enough]


def _tried(evidence: IsolationEvidence, rack: str) -> set[str]:
    """The other racks with which it failed although both nodes pass elsewhere."""
    ends = [{*map(evidence.rack, pair)} for pair in evidence.questioned]
    return {other for pair in ends if rack in pair for other in pair - {rack}}


class _Round:
    """The pairs of one round, as they are chosen: each node once."""

    def __init__(self, evidence: IsolationEvidence, taken: tuple[tuple[str, str], ...]) -> None:
        self.evidence = evidence
        self.pairs = [*taken]
        self.busy = {name for pair in taken for name in pair}

    def take(self, one: str, other: str) -> bool:
        if one in self.busy or other in self.busy:
            return False
        self.pairs.append((one, other))
        self.busy |= {one, other}
        return True

    def test_with_cleared(self, suspects: Iterable[str]) -> None:
        """Each with a cleared node that it has not met; those with the cleanest record first, of
        its own rack if it has met none of those, else of another."""
        evidence = self.evidence
        wanted = {name for pair in _once_more(evidence) for name in pair}
        partners = sorted(
            (name for name in evidence.present if evidence.passes(name)),
            key=lambda name: (
                not evidence.can_witness(name),
                len(evidence.accusers.get(name, ())),
                name in wanted,
            ),
        )
        for name in suspects:
            if name in self.busy:
                continue
            free = [
                p for p in partners if p not in self.busy and p not in evidence.tested_with[name]
            ]
            mates = evidence.mates(name)
            away = evidence.met_passing_mate(name)
            best = next((p for p in free if (p in mates) != away), None)
            if free:  # the cleared one first: it serves the store
                self.take(best or free[0], name)

    def send_out(self, rack: str) -> None:
        """One cleared node of this rack meets one of a rack that it has not failed with."""
        evidence = self.evidence
        avoided = {*_tried(evidence, rack), rack}
        free = [name for name in evidence.cleared_by if name not in self.busy]
        scout = next((name for name in free if evidence.rack(name) == rack), None)
        hosts = [name for name in free if evidence.rack(name) not in avoided]
        host = min(hosts, key=lambda n: evidence.rack(n) not in evidence.reach_out, default=None)
        if scout and host:
            self.take(host, scout)

    def test_among(self, names: Sequence[str]) -> None:
        """With each other, pairs that have not met; within a rack first, since the first round
        went across."""
        left = sorted((n for n in names if n not in self.busy), key=self.evidence.rack)
        while left:
            name = left.pop(0)
            partner = next((p for p in left if p not in self.evidence.tested_with[name]), None)
            if partner is not None:
                self.take(name, partner)
                left.remove(partner)
