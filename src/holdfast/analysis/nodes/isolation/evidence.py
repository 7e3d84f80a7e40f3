"""What all results so far say of each node and pair. It is made again after every round: a few
hundred results are quickly read, and nothing can get out of step."""

from __future__ import annotations

import functools
import statistics
from collections import defaultdict

from holdfast.analysis.nodes.isolation.results import IsolationState, PairOutcome, PairResult

STRIKES = 2
"""different cleared nodes that must fail with a node before it is called bad: one could be the
link between them"""
SLOW_FACTOR = 2.0
"""slower than the median by this is slow. Repeats of one healthy pair differ by tens of percent, a
link that fell back to a lower rate or a throttled GPU is slower by a factor; DLRover uses 2, too"""
MAX_ROUNDS = 6
"""enough for every case that the claims speak of; more would only chase what changes meanwhile"""

Pair = frozenset[str]


class IsolationEvidence:
    """`fine` is a pass that is not slow; everything else that ran is a strike against the pair."""

    def __init__(self, state: IsolationState, *, speeds_count: bool = True) -> None:
        self.state = state
        self.speeds_vary = not speeds_count
        self.results = [one for results in state.rounds for one in results]
        self.missing = {
            name: one.why
            for one in self.results
            if one.outcome is PairOutcome.NOT_RUN
            for name in one.missing
        }
        ran = [one for one in self.results if one.outcome is not PairOutcome.NOT_RUN]
        self.best = _best_speeds(ran)
        self.median = _median(self.best) if speeds_count else 0.0
        self.fine: dict[Pair, list[PairResult]] = defaultdict(list)
        self.not_fine: dict[Pair, list[PairResult]] = defaultdict(list)
        self.met: dict[str, set[str]] = defaultdict(set)
        self.cleared_by: dict[str, set[str]] = defaultdict(set)
        for one in ran:
            (self.fine if self.is_fine(one) else self.not_fine)[one.pair].append(one)
            self.met[one.first].add(one.second)
            self.met[one.second].add(one.first)
            if self.is_fine(one):
                self.cleared_by[one.first].add(one.second)
                self.cleared_by[one.second].add(one.first)

    def is_fine(self, one: PairResult) -> bool:
        return one.outcome is PairOutcome.PASSED and not self.is_slow(one)

    def is_slow(self, one: PairResult) -> bool:
        measured = one.outcome is PairOutcome.PASSED and one.speed is not None
        return measured and (one.speed or 0.0) < self.median / SLOW_FACTOR

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
            and len(self.accusers.get(name, ())) >= STRIKES
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

    @functools.cached_property
    def stragglers(self) -> list[str]:
        return [name for name in self.blamed if all(map(self.is_slow, self.strikes(name)))]

    @functools.cached_property
    def bad(self) -> list[str]:
        slow = {*self.stragglers}
        return [name for name in self.blamed if name not in slow]

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
    def far_ahead(self) -> PairResult | None:
        """The fastest pair, if it leaves the median as far behind as a straggler is."""
        timed = [one for one in self.results if one.speed]
        fastest = max(timed, key=lambda one: one.speed or 0.0, default=None)
        ahead = fastest and self.median and (fastest.speed or 0.0) > self.median * SLOW_FACTOR
        return fastest if ahead else None

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


def weigh(state: IsolationState) -> IsolationEvidence:
    """The evidence; speeds count only while few nodes stand out by theirs."""
    evidence = IsolationEvidence(state)
    if len(evidence.stragglers) <= evidence.limit:
        return evidence
    return IsolationEvidence(state, speeds_count=False)


def _best_speeds(ran: list[PairResult]) -> dict[str, float]:
    best: dict[str, float] = {}
    for one in ran:
        if one.outcome is PairOutcome.PASSED and one.speed is not None:
            for name in one.pair:
                best[name] = max(best.get(name, 0.0), one.speed)
    return best


def _median(best: dict[str, float]) -> float:
    """Of two middle ones the faster: half of all nodes may have met a slow one so far. 0, which
    nothing is slower than, for a single pair."""
    return statistics.median_high(best.values()) if len(best) > 2 else 0.0
