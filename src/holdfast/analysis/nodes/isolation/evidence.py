"""What all results so far say of each node and pair. It is made again after every round: a few
hundred results are quickly read, and nothing can get out of step."""

from __future__ import annotations

import functools
from collections import defaultdict

from holdfast.analysis.nodes.isolation.results import IsolationState, PairOutcome, PairResult

STRIKES = 2
"""different cleared nodes that must fail with a node before it is called bad: one could be the
link between them"""
MAX_ROUNDS = 6
"""enough for every case that the claims speak of; more would only chase what changes meanwhile"""

Pair = frozenset[str]


class IsolationEvidence:
    """Does it work? A pass is fine, a failure is a strike against the pair. `SpeedEvidence` asks
    whether it is fast, of the same results."""

    needed = STRIKES

    def __init__(self, state: IsolationState) -> None:
        self.state = state
        self.results = [one for results in state.rounds for one in results]
        self.missing = {
            name: one.why
            for one in self.results
            if one.outcome is PairOutcome.NOT_RUN
            for name in one.missing
        }
        self.fine: dict[Pair, list[PairResult]] = defaultdict(list)
        self.not_fine: dict[Pair, list[PairResult]] = defaultdict(list)
        self.met: dict[str, set[str]] = defaultdict(set)
        self.cleared_by: dict[str, set[str]] = defaultdict(set)
        self.tested_with: dict[str, set[str]] = defaultdict(set)
        """whatever came of it: a pair that failed is not timed"""
        for one in self.results:
            if one.outcome is not PairOutcome.NOT_RUN:
                self.tested_with[one.first].add(one.second)
                self.tested_with[one.second].add(one.first)
        for one in filter(self.counts, self.results):
            (self.fine if self.is_fine(one) else self.not_fine)[one.pair].append(one)
            self.met[one.first].add(one.second)
            self.met[one.second].add(one.first)
            if self.is_fine(one):
                self.cleared_by[one.first].add(one.second)
                self.cleared_by[one.second].add(one.first)

    def counts(self, one: PairResult) -> bool:
        return one.outcome is not PairOutcome.NOT_RUN

    def is_fine(self, one: PairResult) -> bool:
        return one.outcome is PairOutcome.PASSED

    # --- nodes -----------------------------------------------------------------------------------

    @functools.cached_property
    def present(self) -> list[str]:
        return [name for name in self.state.nodes if name not in self.missing]

    def passes(self, name: str) -> bool:
        """It had a fine result: so it is healthy, and so is its partner."""
        return name in self.cleared_by

    @functools.cached_property
    def accusers(self) -> dict[str, tuple[str, ...]]:
        """node -> the cleared nodes that were never fine with it."""
        found: dict[str, list[str]] = defaultdict(list)
        for pair in self.not_fine:
            if pair in self.fine:
                continue
            one, other = sorted(pair)
            if self.passes(other) and self.can_witness(other, one):
                found[one].append(other)
            if self.passes(one) and self.can_witness(one, other):
                found[other].append(one)
        return {name: tuple(sorted(by)) for name, by in found.items()}

    def can_witness(self, witness: str, other: str = "") -> bool:
        """A node that passes within its rack only may fail with all others by its rack's fault,
        as long as there is a third rack to show that."""
        own, accused = self.rack(witness), self.rack(other)
        if not own or own == accused or own in self.reach_out:
            return True
        return self._passing_racks <= {own, accused}

    @functools.cached_property
    def _passing_racks(self) -> set[str]:
        return {self.rack(name) for name in self.cleared_by}

    @functools.cached_property
    def reach_out(self) -> set[str]:
        """Racks of which some node passes with one of another rack."""
        racks = [{*map(self.rack, pair)} for pair in self.fine]
        return {rack for ends in racks if len(ends) > 1 for rack in ends}

    def rack(self, name: str) -> str:
        """'' where it is not known."""
        return self.state.racks.get(name, "")

    @functools.cached_property
    def blamed(self) -> list[str]:
        """Never fine, and that with enough nodes that are with others."""
        return [
            name
            for name in self.present
            if not self.passes(name)
            and len(self.accusers.get(name, ())) >= self.needed
            and self._was_tried_at_home(name)
        ]

    def _was_tried_at_home(self, name: str) -> bool:
        """With a node of its own rack, one that passes where there is one: else its rack's way out
        could be the fault."""
        return self.met_passing_mate(name) or not self.wants_mates(name)

    def met_passing_mate(self, name: str) -> bool:
        return any(self.passes(mate) for mate in self.mates(name) & self.met[name])

    def wants_mates(self, name: str) -> bool:
        """Some of its rack pass, or it has met too few of them to say that none does."""
        mates = self.mates(name)
        met = len(mates & self.met[name])
        return any(map(self.passes, mates)) or met < min(STRIKES, len(mates))

    def mates(self, name: str) -> set[str]:
        """The other nodes of its rack; none where its rack is not known."""
        return self.by_rack.get(self.rack(name), set()) - {name}

    @functools.cached_property
    def by_rack(self) -> dict[str, set[str]]:
        racks: dict[str, set[str]] = defaultdict(set)
        for name in self.present:
            racks[self.rack(name)].add(name)
        racks.pop("", None)
        return dict(racks)

    @functools.cached_property
    def open(self) -> list[str]:
        """Neither cleared nor blamed yet."""
        blamed = {*self.blamed}
        return [n for n in self.present if not self.passes(n) and n not in blamed]

    def strikes(self, name: str) -> list[PairResult]:
        """What its accusers saw."""
        return [
            one
            for accuser in self.accusers.get(name, ())
            for one in self.not_fine[frozenset((name, accuser))]
        ]

    @functools.cached_property
    def unsteady(self) -> set[str]:
        """Fine with some, not with several others that are cleared: faulty now and then, or more
        than one of its links is."""
        return {n for n, by in self.accusers.items() if self.passes(n) and len(by) >= STRIKES}

    @property
    def limit(self) -> int:
        """How many nodes can be faulty each for itself; of three, one."""
        return max(1, len(self.state.nodes) // 4)

    # --- pairs -----------------------------------------------------------------------------------

    @functools.cached_property
    def questioned(self) -> list[Pair]:
        """Pairs that were never fine although both ends are, with others."""
        return [
            pair for pair in self.not_fine if pair not in self.fine and all(map(self.passes, pair))
        ]
