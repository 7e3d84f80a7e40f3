"""What is compared of a step: the weights of each rank, and its loss."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping
from statistics import median
from typing import Any, NamedTuple

from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.trace import StepFacts


class Quantity(NamedTuple):
    name: str
    read: Callable[[StepFacts], Mapping[int, Any]]
    """by rank, what must be the same bit for bit"""
    apart: Callable[[StepFacts, StepFacts], float | None]
    """the largest difference of a rank; None where it cannot be told"""
    scale: Callable[[Reference, int], float]
    """what a difference after that step is measured against"""
    show: Callable[[StepFacts, StepFacts], str]

    def equal(self, one: StepFacts, other: StepFacts) -> bool | None:
        """None when no rank has it in both."""
        ours, theirs = self.read(one), self.read(other)
        both = ours.keys() & theirs.keys()
        return all(ours[rank] == theirs[rank] for rank in both) if both else None


# --- weights -------------------------------------------------------------------------------------


def _values_apart(one: StepFacts, other: StepFacts) -> float | None:
    both = sorted(one.values.keys() & other.values.keys())
    pairs = [_pair_apart(one.values[rank], other.values[rank]) for rank in both]
    return max((pair for pair in pairs if pair is not None), default=None)


def values_across(one: StepFacts, other: StepFacts) -> float | None:
    """Between different numbers of ranks: only where every rank holds all weights, and so shows the
    same values."""
    ours, theirs = set(one.values.values()), set(other.values.values())
    if len(ours) != 1 or len(theirs) != 1:
        return None
    return _pair_apart(ours.pop(), theirs.pop())


def _pair_apart(ours: tuple[float, ...], theirs: tuple[float, ...]) -> float | None:
    """Beyond what rounding alone may do to weights of that precision."""
    if len(ours) != len(theirs) or not theirs:
        return None
    rounding = 4 * 2.0 ** -_bits(theirs)
    return max(max(abs(a - b) - rounding * abs(b), 0.0) for a, b in zip(ours, theirs, strict=True))


def _bits(values: Iterable[float]) -> int:
    """Of the significand: 8 in bfloat16, 11 in half precision, 24 in float32."""
    parts = [math.frexp(value)[0] for value in values if math.isfinite(value)]
    for bits in (8, 11):
        if all((part * 2**bits).is_integer() for part in parts):
            return bits
    return 24


def _moved(reference: Reference, step: int) -> float:
    """How far training has moved the values by then: measured against themselves, many weights
    hardly change in a short job."""
    steps = reference.trace.steps
    first, now = steps[min(steps)], steps[step]
    moved = _values_apart(now, first)
    return moved or max((abs(v) for values in now.values.values() for v in values), default=1.0)


def _show_weights(one: StepFacts, other: StepFacts) -> str:
    apart = _values_apart(one, other)
    by = f" by up to {apart:.3g}" if apart else ""
    both = one.weights.keys() & other.weights.keys()
    ranks = [rank for rank in sorted(both) if one.weights[rank] != other.weights[rank]]
    if not ranks:
        return f"the weights differ{by}"
    ours, theirs = one.weights[ranks[0]], other.weights[ranks[0]]
    return f"the weights of rank {ranks[0]} differ{by} (digests {ours[:8]} and {theirs[:8]})"


WEIGHTS = Quantity(
    name="weights",
    read=lambda facts: facts.weights,
    apart=_values_apart,
    scale=_moved,
    show=_show_weights,
)

# --- loss ----------------------------------------------------------------------------------------


def _losses_apart(one: StepFacts, other: StepFacts) -> float | None:
    both = one.losses.keys() & other.losses.keys()
    return max((abs(one.losses[rank] - other.losses[rank]) for rank in both), default=None)


def _usual_loss(reference: Reference, step: int) -> float:
    """A loss near zero is not measured against itself."""
    every = [abs(v) for facts in reference.trace.steps.values() for v in facts.losses.values()]
    here = [abs(v) for v in reference.trace.steps[step].losses.values()]
    return max([*here, median(every)] if every else [1.0]) or 1.0


def _show_loss(one: StepFacts, other: StepFacts) -> str:
    both = one.losses.keys() & other.losses.keys()
    for rank in sorted(both):
        if one.losses[rank] != other.losses[rank]:
            ours, theirs = one.losses[rank], other.losses[rank]
            return f"the loss of rank {rank} was {ours:.9g}, not {theirs:.9g}"
    ours, theirs = (sum(facts.losses.values()) / len(facts.losses) for facts in (one, other))
    return f"the mean loss was {ours:.9g}, not {theirs:.9g}"


LOSS = Quantity(
    name="loss",
    read=lambda facts: facts.losses,
    apart=_losses_apart,
    scale=_usual_loss,
    show=_show_loss,
)
