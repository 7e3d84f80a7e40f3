"""Who is slow: the same question about speeds, among the pairs that passed.

A node that passes slowly works, and a failure says nothing about speed: the two are never mixed.
"""

from __future__ import annotations

import functools
import statistics

from holdfast.analysis.nodes.isolation.evidence import IsolationEvidence
from holdfast.analysis.nodes.isolation.results import IsolationState, PairOutcome, PairResult

SLOW_FACTOR = 2.0
"""slower than the median by this is slow. Repeats of one healthy pair differ by tens of percent, a
link that fell back to a lower rate or a throttled GPU is slower by a factor; DLRover uses 2, too"""
SLOW_STRIKES = 3
"""different nodes, fast with others, that must be slow with a straggler: on a busy machine a
healthy pair is slow now and then"""


class SpeedEvidence(IsolationEvidence):
    """A pass that is not slow is fine; median 0: nothing can be compared."""

    def __init__(self, state: IsolationState, best: dict[str, float], median: float) -> None:
        self.best = best
        self.median = median
        self.needed = min(SLOW_STRIKES, len(best) - 1)
        super().__init__(state)

    def counts(self, one: PairResult) -> bool:
        return one.outcome is PairOutcome.PASSED and one.speed is not None

    def is_fine(self, one: PairResult) -> bool:
        return (one.speed or 0.0) >= self.median / SLOW_FACTOR

    @functools.cached_property
    def open(self) -> list[str]:
        """Slow so far. A node that was never timed is no matter of speed."""
        return [name for name in super().open if self.met[name]]

    @property
    def vary(self) -> bool:
        """More nodes are slow than can be so each for itself."""
        return len(self.blamed) > self.limit

    @property
    def far_ahead(self) -> PairResult | None:
        """The fastest pair, if it leaves the median as far behind as a straggler is."""
        timed = [one for one in self.results if self.counts(one)]
        fastest = max(timed, key=lambda one: one.speed or 0.0, default=None)
        ahead = fastest and self.median and (fastest.speed or 0.0) > self.median * SLOW_FACTOR
        return fastest if ahead else None


def suspected(state: IsolationState) -> SpeedEvidence:
    """For the next round. Of two middle speeds the higher: half of all nodes may have met a slow
    one so far."""
    best = _best_speeds(state)
    return SpeedEvidence(state, best, statistics.median_high(best.values()) if _many(best) else 0.0)


def concluded(state: IsolationState) -> SpeedEvidence:
    """For the verdict, which is never harsher than the suspicion. By now most nodes have met a
    fast one."""
    best = _best_speeds(state)
    return SpeedEvidence(state, best, statistics.median_low(best.values()) if _many(best) else 0.0)


def _many(best: dict[str, float]) -> bool:
    """A single pair has nothing to be compared with."""
    return len(best) > 2


def _best_speeds(state: IsolationState) -> dict[str, float]:
    """A pair runs at the speed of its slower member, so a node counts by its best."""
    best: dict[str, float] = {}
    for results in state.rounds:
        for one in results:
            if one.outcome is PairOutcome.PASSED and one.speed is not None:
                for name in one.pair:
                    best[name] = max(best.get(name, 0.0), one.speed)
    return best
