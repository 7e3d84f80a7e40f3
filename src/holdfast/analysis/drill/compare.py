"""Loss and weights of a disturbed job against the undisturbed one, step by step.

Bit for bit, where the job repeats its own bits: what came before the fault shows it. Else within a
tolerance, which is measured there, and said.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.drill.outcome import Comparison
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.trace import StepFacts, Trace

FLOOR = 0.01
"""part of a quantity's scale: below it two runs are the same, where bits need not be"""
MARGIN = 5.0
"""times the spread that was measured before the fault, where the job does not repeat its bits"""
TOO_WIDE = 0.2
"""part of the scale: two runs that differ by as much without a fault cannot be compared"""


class SeenStep(NamedTuple):
    step: int
    facts: StepFacts
    world: int
    before_fault: bool
    attempt: int
    taken: bool
    """False for the state before the first step of an attempt"""


class Compared(NamedTuple):
    verdict: Comparison
    step: int | None = None
    """the first that differs"""
    seen: str = ""
    """what differs, or why that is not known"""
    remark: str = ""
    """how it was compared, where not bit for bit"""
    repeats: bool | None = None
    """before the fault it had the bits of the undisturbed job; None: nothing to compare"""


def seen_steps(traces: Iterable[Trace], fault_at: float) -> list[SeenStep]:
    """Every step of every attempt, those done twice twice; the state before a first step, too."""
    return [
        SeenStep(step, facts, trace.world, facts.t < fault_at, attempt, step > trace.base)
        for attempt, trace in enumerate(traces)
        for step, facts in sorted(trace.steps.items())
    ]


class _Quantity(NamedTuple):
    name: str
    equal: Callable[[StepFacts, StepFacts], bool | None]
    """bit for bit, of ranks that both have; None when there are none"""
    apart: Callable[[StepFacts, StepFacts], float | None]
    across: Callable[[StepFacts, StepFacts], float | None]
    """the same where the numbers of ranks differ"""
    scale: Callable[[Reference, int], float]
    """what a difference at that step is measured against"""
    show: Callable[[StepFacts, StepFacts], str]
    of_steps: bool
    """the state before a first step has none"""


def compare_weights(reference: Reference, seen: Sequence[SeenStep]) -> Compared:
    return _compare(_WEIGHTS, reference, seen)


def compare_loss(reference: Reference, seen: Sequence[SeenStep]) -> Compared:
    return _compare(_LOSS, reference, seen)


def _compare(quantity: _Quantity, reference: Reference, seen: Sequence[SeenStep]) -> Compared:
    steps = [one for one in seen if one.taken or not quantity.of_steps]
    early = [one for one in steps if one.before_fault and one.world == reference.ranks]
    told = [equal for one in early if (equal := _equal(quantity, reference, one)) is not None]
    repeats = all(told) if told else None
    same_world = all(one.world == reference.ranks for one in steps)
    if same_world and repeats is not False:
        found = _bit_for_bit(quantity, reference, steps)
        # Without a step before the fault, whether the job repeats its bits is not known.
        if found.verdict != "differs" or repeats:
            return found._replace(repeats=repeats)
    return _within(quantity, reference, steps, early)._replace(repeats=repeats)


def _equal(quantity: _Quantity, reference: Reference, one: SeenStep) -> bool | None:
    facts = reference.trace.steps.get(one.step)
    return quantity.equal(one.facts, facts) if facts else None


def _bit_for_bit(quantity: _Quantity, reference: Reference, steps: Sequence[SeenStep]) -> Compared:
    missing = None
    for one in steps:
        facts = reference.trace.steps.get(one.step)
        equal = quantity.equal(one.facts, facts) if facts else None
        if equal is False:
            assert facts
            return Compared("differs", one.step, f"at step {one.step} "
                            f"{quantity.show(one.facts, facts)}")  # fmt: skip
        if equal is None and not one.before_fault:
            missing = one.step if missing is None else missing
    return _complete(quantity, reference, steps, missing, "identical")


def _complete(
    quantity: _Quantity,
    reference: Reference,
    steps: Sequence[SeenStep],
    missing: int | None,
    verdict: Comparison,
) -> Compared:
    """What did not differ is only as good as what was seen of it."""
    last = max((one.step for one in steps if not one.before_fault), default=None)
    if missing is not None:
        return Compared("unknown", seen=f"no {quantity.name} could be read at step {missing}")
    if last is None:
        return Compared("unknown", seen="no step was seen after the fault")
    if last < reference.steps:
        seen = f"the job came to step {last} of {reference.steps}"
        return Compared("unknown", seen=seen)
    return Compared(verdict)


# --- within a tolerance --------------------------------------------------------------------------


def _within(
    quantity: _Quantity,
    reference: Reference,
    steps: Sequence[SeenStep],
    early: Sequence[SeenStep],
) -> Compared:
    spread = max((_away(quantity, reference, one) or 0.0 for one in early), default=0.0)
    if spread > TOO_WIDE:
        return _with_itself(quantity, reference, steps, spread)
    until = max((one.step for one in early), default=0)
    missing = None
    for one in steps:
        if one.before_fault:
            continue
        away = _away(quantity, reference, one)
        if away is None:
            missing = one.step if missing is None else missing
            continue
        # Rounding differences grow as the training goes on.
        growth = max(one.step / until, 1.0) if until else 1.0
        allowed = max(FLOOR, MARGIN * spread * growth)
        if away > allowed:
            facts = reference.trace.steps[one.step]
            said = f"at step {one.step} {quantity.show(one.facts, facts)}"
            remark = _tolerance(quantity, spread, allowed)
            return Compared("differs", one.step, said, remark)
    found = _complete(quantity, reference, steps, missing, "same")
    return found._replace(remark=_tolerance(quantity, spread, max(FLOOR, MARGIN * spread)))


def _tolerance(quantity: _Quantity, spread: float, allowed: float) -> str:
    if spread:
        return (f"{quantity.name}: the job does not repeat its own bits (up to {spread:.1%} apart "
                f"before the fault): compared within {allowed:.1%}")  # fmt: skip
    return f"{quantity.name}: compared within {allowed:.1%}, not bit for bit"


def _away(quantity: _Quantity, reference: Reference, one: SeenStep) -> float | None:
    facts = reference.trace.steps.get(one.step)
    if facts is None:
        return None
    if one.world == reference.ranks:
        if quantity.equal(one.facts, facts):
            return 0.0
        apart = quantity.apart(one.facts, facts)
    else:
        apart = quantity.across(one.facts, facts)
    if apart is None or math.isnan(apart):
        return None
    return apart / quantity.scale(reference, one.step) if apart else 0.0


def _with_itself(
    quantity: _Quantity, reference: Reference, steps: Sequence[SeenStep], spread: float
) -> Compared:
    """Two undisturbed runs have little in common (no seed is set): the steps that were done twice
    must still agree with each other."""
    why = f"two undisturbed runs of this job differ by {spread:.0%}: set a seed to compare them"
    first: dict[int, SeenStep] = {}
    twice = 0
    for one in steps:
        before = first.setdefault(one.step, one)
        if before is one or before.attempt == one.attempt or before.world != one.world:
            continue
        equal = quantity.equal(one.facts, before.facts)
        apart = 0.0 if equal else quantity.apart(one.facts, before.facts)
        if apart is None:
            continue
        if apart / quantity.scale(reference, one.step) > FLOOR:
            return Compared("unknown", one.step, f"{why}; step {one.step} was done twice, and "
                            f"{quantity.show(one.facts, before.facts)}")  # fmt: skip
        twice += one.step > before.step - 1
    if not twice:
        return Compared("unknown", seen=why)
    remark = f"{quantity.name}: {why}; {text.counted(twice, 'step')} done twice agree"
    return _complete(quantity, reference, steps, None, "same")._replace(remark=remark)


# --- weights -------------------------------------------------------------------------------------


def _equal_weights(one: StepFacts, other: StepFacts) -> bool | None:
    both = one.weights.keys() & other.weights.keys()
    return all(one.weights[rank] == other.weights[rank] for rank in both) if both else None


def _values_apart(one: StepFacts, other: StepFacts) -> float | None:
    both = one.values.keys() & other.values.keys()
    return max(
        (abs(a - b) for rank in both
         for a, b in zip(one.values[rank], other.values[rank])),  # noqa: B905
        default=None,
    )  # fmt: skip


def _values_across(one: StepFacts, other: StepFacts) -> float | None:
    """Only where every rank holds all weights: then they show the same values."""
    ours, theirs = set(one.values.values()), set(other.values.values())
    if len(ours) != 1 or len(theirs) != 1:
        return None
    return max((abs(a - b) for a, b in zip(ours.pop(), theirs.pop())), default=None)  # noqa: B905


def _moved(reference: Reference, step: int) -> float:
    """How far training has moved the values: weights of many layers hardly change otherwise."""
    first = reference.trace.steps.get(min(reference.trace.steps))
    now = reference.trace.steps[step]
    moved = _values_apart(now, first) if first else None
    return moved or max((abs(v) for values in now.values.values() for v in values), default=1.0)


def _show_weights(one: StepFacts, other: StepFacts) -> str:
    ranks = [rank for rank in sorted(one.weights) if one.weights[rank] != other.weights.get(rank)]
    apart = _values_apart(one, other)
    by = f", by up to {apart:.3g}" if apart else ""
    if not ranks:
        return f"the weights differ from those of the undisturbed job{by}"
    rank = ranks[0]
    return (f"the weights of rank {rank} differ from those of the undisturbed job{by} "
            f"({one.weights[rank][:8]}, there {other.weights.get(rank, '')[:8]})")  # fmt: skip


_WEIGHTS = _Quantity(
    "weights", _equal_weights, _values_apart, _values_across, _moved, _show_weights, False
)

# --- loss ----------------------------------------------------------------------------------------


def _equal_losses(one: StepFacts, other: StepFacts) -> bool | None:
    both = one.losses.keys() & other.losses.keys()
    return all(one.losses[rank] == other.losses[rank] for rank in both) if both else None


def _losses_apart(one: StepFacts, other: StepFacts) -> float | None:
    both = one.losses.keys() & other.losses.keys()
    return max((abs(one.losses[rank] - other.losses[rank]) for rank in both), default=None)


def _losses_across(one: StepFacts, other: StepFacts) -> float | None:
    """Means over ranks, as a global batch has one; or sums, where each backs up a part of it."""
    if not one.losses or not other.losses:
        return None
    ours, theirs = sum(one.losses.values()), sum(other.losses.values())
    means = abs(ours / len(one.losses) - theirs / len(other.losses))
    return min(means, abs(ours - theirs))


def _usual_loss(reference: Reference, step: int) -> float:
    found = [abs(v) for v in reference.trace.steps[step].losses.values()]
    return max(found, default=0.0) or 1.0


def _show_loss(one: StepFacts, other: StepFacts) -> str:
    for rank in sorted(one.losses.keys() & other.losses.keys()):
        if one.losses[rank] != other.losses[rank]:
            return (f"the loss of rank {rank} was {one.losses[rank]:.6g}, "
                    f"in the undisturbed job {other.losses[rank]:.6g}")  # fmt: skip
    ours, theirs = (sum(f.losses.values()) / max(len(f.losses), 1) for f in (one, other))
    return f"the mean loss was {ours:.6g}, in the undisturbed job {theirs:.6g}"


_LOSS = _Quantity(
    "loss", _equal_losses, _losses_apart, _losses_across, _usual_loss, _show_loss, True
)
