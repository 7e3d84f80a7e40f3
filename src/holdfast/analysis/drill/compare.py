"""Loss and weights of a disturbed job against the undisturbed one, step by step.

Bit for bit, where the job repeats its own bits: what came before the fault shows it. Else within a
tolerance, which is measured there, and said.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.drill.outcome import Comparison
from holdfast.analysis.drill.quantities import LOSS, WEIGHTS, Quantity
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.trace import StepFacts

FLOOR = 0.01
"""part of a quantity's scale: below it two runs are the same, where bits need not be"""
MARGIN = 5.0
"""times the spread that was measured before the fault, where the job does not repeat its bits"""
TOO_WIDE = 0.2
"""part of the scale: two runs that differ by as much without a fault cannot be compared"""


class SeenStep(NamedTuple):
    """A step of an attempt, or (`taken` is False) the state before its first one."""

    step: int
    facts: StepFacts
    world: int
    before_fault: bool
    attempt: int
    taken: bool


class Compared(NamedTuple):
    verdict: Comparison
    step: int | None = None
    """the first that differs"""
    seen: str = ""
    """what differs, or why that is not known"""
    remark: str = ""
    """how it was compared, where not bit for bit"""


def repeats_its_bits(reference: Reference, seen: Sequence[SeenStep]) -> bool | None:
    """Whether the weights are those of the undisturbed job, bit for bit, where no fault was yet, or
    in the end. A job that does not repeat its bits leaves them at some step, and never comes back.
    None: nothing to tell it by."""
    told = [
        (one, equal)
        for one in seen
        if one.world == reference.ranks and (equal := _equal(WEIGHTS, reference, one)) is not None
    ]
    early = [equal for one, equal in told if one.before_fault]
    in_the_end = bool(told) and told[-1][0].step == reference.steps and told[-1][1]
    came_back = any(not one and other for one, other in itertools.pairwise(early))
    if in_the_end or came_back:
        return True
    return all(early) if early else None


def compare_weights(
    reference: Reference, seen: Sequence[SeenStep], *, repeats: bool | None
) -> Compared:
    return _compare(WEIGHTS, reference, list(_without_unlike_starts(reference, seen)), repeats)


def compare_loss(
    reference: Reference, seen: Sequence[SeenStep], *, repeats: bool | None
) -> Compared:
    return _compare(LOSS, reference, [one for one in seen if one.taken], repeats)


def _compare(
    quantity: Quantity,
    reference: Reference,
    steps: Sequence[SeenStep],
    repeats: bool | None,  # noqa: FBT001
) -> Compared:
    if not any(quantity.read(facts) for facts in reference.trace.steps.values()):
        return Compared("unknown", seen="none was seen in any step of the undisturbed job")
    if repeats is not False:
        found = _bit_for_bit(quantity, reference, steps)
        if found.verdict != "differs" or repeats:
            return found
    within = _within(quantity, reference, steps)
    if within.verdict == "differs" and repeats is None:
        why = "no step before the fault shows whether the job repeats itself"
        return Compared("unknown", within.step, f"{why}; {within.seen}")
    return within


def _equal(quantity: Quantity, reference: Reference, one: SeenStep) -> bool | None:
    facts = reference.trace.steps.get(one.step)
    return quantity.equal(one.facts, facts) if facts else None


def _without_unlike_starts(reference: Reference, seen: Sequence[SeenStep]) -> Iterator[SeenStep]:
    """Before a first step not every part of the model may have been seen (several optimizers that
    take turns): where no rank's weights fit there, and all do after it, they say nothing."""
    after = {(one.attempt, one.step): one for one in seen if one.taken}
    for one in seen:
        following = after.get((one.attempt, one.step + 1))
        facts = reference.trace.steps.get(one.step)
        if not one.taken and following and facts and _equal(WEIGHTS, reference, following):
            both = one.facts.weights.keys() & facts.weights.keys()
            if not any(one.facts.weights[rank] == facts.weights[rank] for rank in both):
                continue
        yield one


def _bit_for_bit(quantity: Quantity, reference: Reference, steps: Sequence[SeenStep]) -> Compared:
    for one in steps:
        if _equal(quantity, reference, one) is False:
            said = quantity.show(one.facts, reference.trace.steps[one.step])
            return Compared("differs", one.step, f"at step {one.step} {said}")
    return as_far_as_seen(quantity, reference, steps, "identical")


def as_far_as_seen(
    quantity: Quantity, reference: Reference, steps: Sequence[SeenStep], verdict: Comparison
) -> Compared:
    """What does not differ is only as good as what was seen of it."""
    later = [one for one in steps if one.taken and not one.before_fault]
    if not later:
        return Compared("unknown", seen="no step was seen after the fault")
    final = [one for one in later if one.attempt == later[-1].attempt]
    for one in final:
        facts = reference.trace.steps.get(one.step)
        if facts is None:
            seen = f"the job took step {one.step}, the undisturbed one ended at {reference.steps}"
            return Compared("unknown", seen=seen)
        expected = quantity.read(facts)
        if one.world == reference.ranks and (unseen := expected.keys() - quantity.read(one.facts)):
            seen = f"none could be read at step {one.step} of {text.ranks(unseen)}"
            return Compared("unknown", seen=seen)
    if final[-1].step < reference.steps:
        return Compared(
            "unknown", seen=f"the job came to step {final[-1].step} of {reference.steps}"
        )
    return Compared(verdict)


# --- within a tolerance --------------------------------------------------------------------------


def _within(quantity: Quantity, reference: Reference, steps: Sequence[SeenStep]) -> Compared:
    early = [one for one in steps if one.before_fault]
    spread = max((_away(quantity, reference, one) or 0.0 for one in early), default=0.0)
    if spread > TOO_WIDE:
        return _with_itself(quantity, reference, steps, spread)
    until = max((one.step for one in early), default=0)
    remark = _tolerance(quantity, spread)
    for one in steps:
        away = _away(quantity, reference, one)
        # Rounding differences grow as training continues.
        growth = max(one.step / until, 1.0) if until else 1.0
        if one.before_fault or (away is not None and away <= max(FLOOR, MARGIN * spread * growth)):
            continue
        if away is None:
            if one.step in reference.trace.steps and one.taken:
                seen = (
                    f"at step {one.step} only digests could be read, and the job does not repeat "
                )
                return Compared("unknown", seen=f"{seen}its bits")
            continue
        said = quantity.show(one.facts, reference.trace.steps[one.step])
        return Compared("differs", one.step, f"at step {one.step} {said}", remark)
    return as_far_as_seen(quantity, reference, steps, "same")._replace(remark=remark)


def _tolerance(quantity: Quantity, spread: float) -> str:
    why = "the job does not repeat its own bits"
    if spread:
        why = f"two undisturbed runs of this job are up to {spread:.2g} apart"
    return f"{quantity.name}: {why}, so it is compared within {max(FLOOR, MARGIN * spread):.1%}"


def _away(quantity: Quantity, reference: Reference, one: SeenStep) -> float | None:
    """Part of the quantity's scale."""
    facts = reference.trace.steps.get(one.step)
    if facts is None:
        return None
    apart = 0.0 if quantity.equal(one.facts, facts) else quantity.apart(one.facts, facts)
    return apart / quantity.scale(reference, one.step) if apart else apart


def _with_itself(
    quantity: Quantity, reference: Reference, steps: Sequence[SeenStep], spread: float
) -> Compared:
    """Two undisturbed runs have little in common, since no seed is set: steps that were done twice
    must still agree with each other."""
    why = f"two undisturbed runs of this job differ by {spread:.0%}: set a seed to compare them"
    first: dict[int, SeenStep] = {}
    twice = 0
    for one in steps:
        before = first.setdefault(one.step, one)
        if not one.taken or before.attempt == one.attempt:
            continue
        equal = quantity.equal(one.facts, before.facts)
        apart = 0.0 if equal else quantity.apart(one.facts, before.facts)
        if apart is None or one.step not in reference.trace.steps:
            continue
        if apart / quantity.scale(reference, one.step) > FLOOR:
            said = quantity.show(one.facts, before.facts)
            return Compared("unknown", one.step, f"{why}; step {one.step} was done twice: {said}")
        twice += 1
    if not twice:
        return Compared("unknown", seen=why)
    remark = f"{quantity.name}: {why}; {text.counted(twice, 'step')} done twice agree"
    return as_far_as_seen(quantity, reference, steps, "same")._replace(remark=remark)
