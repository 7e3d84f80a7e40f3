"""Simulated nodes whose faults are known, tested round by round as the plan says."""

from __future__ import annotations

import random
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from holdfast.analysis.nodes.isolation import (
    Isolation,
    IsolationState,
    PairOutcome,
    PairResult,
    absorb,
    conclude,
    plan_round,
)

FAST = 10e9
SLOW = 2e9


def names(count: int) -> list[str]:
    return [f"n{number:04}" for number in range(count)]


@dataclass
class Fleet:
    """What is faulty, and how each pair answers."""

    nodes: list[str]
    bad: set[str] = field(default_factory=set)
    links: set[frozenset[str]] = field(default_factory=set)
    slow: set[str] = field(default_factory=set)
    slow_links: set[frozenset[str]] = field(default_factory=set)
    fickle: Mapping[str, float] = field(default_factory=dict)
    """node -> how often it fails"""
    racks: Mapping[str, str] = field(default_factory=dict)
    cut: frozenset[str] = frozenset()
    """racks whose uplink is dead"""
    noise: float = 0.0
    """sigma of what multiplies each speed; 0: within a quarter"""
    missing: set[str] = field(default_factory=set)
    chance: random.Random = field(default_factory=lambda: random.Random(0))

    def test(self, first: str, second: str) -> PairResult:
        pair = frozenset((first, second))
        if absent := pair & self.missing:
            return PairResult(
                first=first,
                second=second,
                outcome=PairOutcome.NOT_RUN,
                missing=tuple(absent),
                why="no torch",
            )
        racks = {self.racks.get(name, "") for name in pair}
        fails = (
            bool(pair & self.bad)
            or pair in self.links
            or (len(racks) > 1 and bool(racks & self.cut))
            or any(self.chance.random() < self.fickle.get(name, 0.0) for name in sorted(pair))
        )
        if fails:
            return PairResult(first=first, second=second, outcome=PairOutcome.FAILED, why="boom")
        top = SLOW if pair & self.slow or pair in self.slow_links else FAST
        steady = self.chance.uniform(0.75, 1.25)
        speed = top * (self.chance.lognormvariate(0, self.noise) if self.noise else steady)
        return PairResult(first=first, second=second, outcome=PairOutcome.PASSED, speed=speed)

    def isolate(self) -> Isolation:
        """To the end, as a coordinator would; every round is checked for being possible."""
        state = IsolationState(nodes=tuple(self.nodes), racks=dict(self.racks))
        while pairs := plan_round(state):
            busy = [name for pair in pairs for name in pair]
            assert len(busy) == len(set(busy)), "a node is in two pairs of one round"
            state = absorb(state, [self.test(*pair) for pair in pairs])
        self.state = state
        return conclude(state)


def met(fleet: Fleet, round_number: int) -> set[frozenset[str]]:
    return {one.pair for one in fleet.state.rounds[round_number - 1]}


def named(judged: Iterable[object]) -> set[str]:
    return {one.name for one in judged}  # type: ignore[attr-defined]


def paired(judged: Iterable[object]) -> set[frozenset[str]]:
    return {frozenset((one.first, one.second)) for one in judged}  # type: ignore[attr-defined]


def settled_once(fleet: Fleet, found: Isolation) -> None:
    """Every node has exactly one standing."""
    lists = [
        *named(found.bad),
        *named(found.stragglers),
        *named(found.undecided),
        *found.cleared,
    ]
    assert len(lists) == len(set(lists))
    ends = {name for pair in paired(found.transient) for name in pair}
    assert {*lists} | ends == {*fleet.nodes}
    assert not {*found.cleared} & ends
