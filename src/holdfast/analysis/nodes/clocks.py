"""The clocks of the nodes against each other; an order inside the error bounds is a tie."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.analysis.nodes.facts import ClockOffset


class Spread(NamedTuple):
    fastest: str
    slowest: str
    seconds: float
    """by how much the fastest is ahead of the slowest, as measured"""
    bound: float
    """how far that may be off"""
    odd: tuple[str, ...]
    """nodes that are surely away from the middle, where they are the minority"""

    @property
    def at_least(self) -> float:
        """What the two differ by for certain; 0 for a tie."""
        return max(0.0, self.seconds - self.bound)


def spread(offsets: Mapping[str, ClockOffset]) -> Spread:
    fastest = max(sorted(offsets), key=lambda name: offsets[name].seconds)
    slowest = min(sorted(offsets), key=lambda name: offsets[name].seconds)
    seconds = offsets[fastest].seconds - offsets[slowest].seconds
    bound = offsets[fastest].bound + offsets[slowest].bound
    return Spread(fastest, slowest, seconds, bound, _odd(offsets, (seconds - bound) / 2))


def _odd(offsets: Mapping[str, ClockOffset], away: float) -> tuple[str, ...]:
    """Further from the median than half of the spread: the side with fewer nodes."""
    middle = statistics.median(one.seconds for one in offsets.values())
    far = [n for n, one in offsets.items() if abs(one.seconds - middle) > max(away, one.bound)]
    return tuple(sorted(far)) if len(far) * 2 < len(offsets) else ()
