"""A job that went on with another number of ranks, against the undisturbed one.

The samples of each step are the same, and what was loaded is. But each rank draws its own random
numbers (dropout), and sums are taken in another order: bits cannot be expected, nor the loss of
each step.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from statistics import mean, median

from holdfast import text
from holdfast.analysis.drill.compare import FLOOR, Compared, SeenStep, as_far_as_seen
from holdfast.analysis.drill.quantities import LOSS, WEIGHTS, values_across
from holdfast.analysis.drill.reference import Reference

DEVIATIONS = 3.0
"""of a mean over all steps: what chance alone hardly exceeds"""
ANOTHER_TRAINING = 0.5
"""part of the usual loss: a mean that far off is no matter of chance"""
BY_CHANCE = 0.3
"""part of the way that training has moved the weights: as much as other random numbers do"""


def compare_loss(reference: Reference, steps: Sequence[SeenStep]) -> Compared:
    """`steps`: from the first attempt with other ranks on. Means over all of them: the samples are
    the same, so that only the random numbers are left, which change it less from one run to the
    other than the samples change it from one step to the next."""
    found = as_far_as_seen(LOSS, reference, steps, "same")
    pairs = [pair for one in steps if one.taken and (pair := _losses(reference, one))]
    if found.verdict == "unknown" or not pairs:
        return found if found.verdict == "unknown" else Compared("unknown", seen="no loss was seen")
    usual = LOSS.scale(reference, reference.steps)
    off = abs(mean(ours - theirs for ours, theirs in pairs)) / usual
    allowed = max(FLOOR, DEVIATIONS * _roughness(reference) / usual / math.sqrt(len(pairs)))
    went = f"{_went_on(reference, steps)}: the mean over {text.counted(len(pairs), 'step')}"
    if off <= allowed:
        return found._replace(remark=f"loss: {went} is {off:.1%} off, within {allowed:.1%}")
    seen = f"{went} is {off:.1%} off, more than {allowed:.1%}"
    if off > ANOTHER_TRAINING:
        return Compared("differs", steps[-1].step, seen)
    return Compared("unknown", seen=f"{seen}; chance may do that")


def _losses(reference: Reference, one: SeenStep) -> tuple[float, float] | None:
    """Ours and theirs: means over ranks; or sums, where each rank's is its part of the whole."""
    facts = reference.trace.steps.get(one.step)
    if facts is None or not facts.losses or not one.facts.losses:
        return None
    ours, theirs = sum(one.facts.losses.values()), sum(facts.losses.values())
    means = ours / len(one.facts.losses), theirs / len(facts.losses)
    return min(means, (ours, theirs), key=lambda pair: abs(pair[0] - pair[1]))


def _roughness(reference: Reference) -> float:
    """Of the undisturbed job's loss, from one step to the next."""
    ordered = [facts for _, facts in sorted(reference.trace.steps.items()) if facts.losses]
    means = [mean(facts.losses.values()) for facts in ordered]
    changes = [abs(later - earlier) for earlier, later in itertools.pairwise(means)]
    # The median, as in its first steps a loss falls steeply: times 1.48 a standard deviation.
    return 1.48 * median(changes) / math.sqrt(2) if changes else 0.0


def compare_weights(reference: Reference, steps: Sequence[SeenStep], loss: Compared) -> Compared:
    went = _went_on(reference, steps)
    furthest = 0.0
    for one in steps:
        away = _away(reference, one)
        if away is None:
            if one.taken:
                return _by_the_loss(went, loss)
            continue
        if not one.taken and away > FLOOR:
            said = WEIGHTS.show(one.facts, reference.trace.steps[one.step])
            return Compared("differs", one.step, f"what was loaded of step {one.step}: {said}")
        if away > BY_CHANCE:
            seen = f"{went}, and at step {one.step} the weights are {away:.0%} of their way off"
            return Compared("unknown", one.step, f"{seen}; chance may do that")
        furthest = max(furthest, away)
    remark = f"weights: {went}: at most {furthest:.1%} of their way off, within {BY_CHANCE:.0%}"
    return as_far_as_seen(WEIGHTS, reference, steps, "same")._replace(remark=remark)


def _by_the_loss(went: str, loss: Compared) -> Compared:
    if loss.verdict != "same":
        return Compared("unknown", seen=f"{went}, and each rank holds another part of the weights")
    remark = (
        f"weights: {went}, and each rank holds another part of them: judged by the loss, which "
        "depends on all of them"
    )
    return Compared("same", remark=remark)


def _away(reference: Reference, one: SeenStep) -> float | None:
    facts = reference.trace.steps.get(one.step)
    if facts is None:
        return None
    digests = {*one.facts.weights.values(), *facts.weights.values()}
    if one.facts.weights and facts.weights and len(digests) == 1:
        return 0.0
    apart = values_across(one.facts, facts)
    return apart / WEIGHTS.scale(reference, one.step) if apart else apart


def _went_on(reference: Reference, steps: Sequence[SeenStep]) -> str:
    worlds = {one.world for one in steps} - {reference.ranks}
    ranks = text.counted(min(worlds), "rank")
    return f"it went on with {ranks} instead of {reference.ranks}, and so with other random numbers"
