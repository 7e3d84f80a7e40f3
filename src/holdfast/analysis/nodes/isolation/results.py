"""The nouns: what a test of two nodes brought, everything known so far, and what it means."""

from __future__ import annotations

import enum
from collections.abc import Iterable

import msgspec

from holdfast.analysis.machine import Fact


class PairOutcome(enum.Enum):
    PASSED = "passed"
    FAILED = "failed"
    NOT_RUN = "not run"


class PairResult(Fact, frozen=True):
    """One test of two nodes."""

    first: str
    second: str
    outcome: PairOutcome
    speed: float | None = None
    """bytes a second, of a pass; None when nothing was measured"""
    why: str = ""
    """of a failure, in the words of the ranks; why it was not run"""
    missing: tuple[str, ...] = ()
    """who could not take part, when it was not run: they are not asked again"""

    def __post_init__(self) -> None:
        if self.first == self.second:
            raise ValueError(f"a pair needs two nodes, got {self.first!r} twice")

    @property
    def pair(self) -> frozenset[str]:
        return frozenset((self.first, self.second))


class IsolationState(Fact, frozen=True):
    """The nodes that take part, and what the rounds so far brought."""

    nodes: tuple[str, ...]
    racks: dict[str, str] = msgspec.field(default_factory=dict)
    """node -> its rack or switch, where that is known"""
    rounds: tuple[tuple[PairResult, ...], ...] = ()


def absorb(state: IsolationState, results: Iterable[PairResult]) -> IsolationState:
    """The state after one more round."""
    brought = tuple(results)
    known = set(state.nodes)
    if strangers := sorted({name for one in brought for name in one.pair} - known):
        raise ValueError(f"not among the nodes: {', '.join(strangers)}")
    return msgspec.structs.replace(state, rounds=(*state.rounds, brought))


class JudgedNode(Fact, frozen=True):
    name: str
    why: str


class JudgedPair(Fact, frozen=True):
    first: str
    second: str
    why: str


class Isolation(Fact, frozen=True):
    """What the rounds mean. A node is in one of `bad`, `stragglers`, `undecided`, `cleared`, or an
    end of a `transient` pair."""

    bad: tuple[JudgedNode, ...]
    stragglers: tuple[JudgedNode, ...]
    undecided: tuple[JudgedNode, ...]
    cleared: tuple[str, ...]
    links: tuple[JudgedPair, ...]
    """failed each time although both ends pass with others"""
    slow_links: tuple[JudgedPair, ...]
    """slow each time although both ends are fast with others"""
    transient: tuple[JudgedPair, ...]
    """failed once, passed the second time"""
    rounds: int
    remarks: tuple[str, ...] = ()
    """about all of it: a rack that is cut off, speeds that cannot be compared"""
