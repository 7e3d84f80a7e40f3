"""Did the disturbed job see the samples that the undisturbed one saw, step by step?"""

from __future__ import annotations

from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.drill.compare import Compared, SeenStep
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.trace import MODULUS


def compare_data(
    reference: Reference, seen: Sequence[SeenStep], *, repeats: bool | None
) -> Compared:
    """`repeats`: the job has the bits of the undisturbed one where no fault was yet."""
    steps = [one for one in seen if one.taken]
    if not any(facts.data is not None for facts in reference.trace.steps.values()):
        return Compared("unknown", seen="the inputs of the undisturbed job could not be read")
    early = [told for one in steps if one.before_fault
             and (told := _equal(reference, one)) is not None]  # fmt: skip
    if not repeats and early and not all(early):
        return _with_itself(steps)
    for one in steps:
        if _equal(reference, one) is False:
            how = _how(reference, steps, one)
            if repeats is None and not early:
                why = "no step before the fault shows whether the job repeats itself"
                return Compared("unknown", one.step, f"{why}; {how}")
            return Compared("differs", one.step, how)
    return _as_far_as_seen(reference, [one for one in steps if not one.before_fault])


def _equal(reference: Reference, one: SeenStep) -> bool | None:
    theirs = reference.trace.steps.get(one.step)
    if theirs is None or theirs.data is None or one.facts.data is None:
        return None
    return one.facts.data == theirs.data


def _as_far_as_seen(reference: Reference, later: Sequence[SeenStep]) -> Compared:
    if not later:
        return Compared("unknown", seen="no step was seen after the fault")
    for one in later:
        if one.step > reference.steps:
            seen = f"the job went on after step {reference.steps}, where the undisturbed one ended"
            return Compared("differs", one.step, seen)
        if one.attempt == later[-1].attempt and _equal(reference, one) is None:
            return Compared("unknown", seen=f"the inputs of step {one.step} could not be read")
    last = max(one.step for one in later)
    if last < reference.steps:
        return Compared("unknown", seen=f"the job came to step {last} of {reference.steps}")
    return Compared("identical")


def _with_itself(steps: Sequence[SeenStep]) -> Compared:
    """The job shuffles otherwise each time: what it did twice must still be the same."""
    why = (
        "two undisturbed runs of this job do not see the same samples: seed whatever chooses them "
        "(torch.manual_seed at the start, the sampler, random_split's generator)"
    )
    first: dict[int, SeenStep] = {}
    twice = 0
    for one in steps:
        before = first.setdefault(one.step, one)
        if before.attempt == one.attempt or None in (one.facts.data, before.facts.data):
            continue
        if one.facts.data != before.facts.data:
            seen = f"{why}; step {one.step} was done twice, with other samples"
            return Compared("unknown", one.step, seen)
        twice += 1
    if not twice:
        return Compared("unknown", seen=why)
    remark = f"data: {why}; {text.counted(twice, 'step')} done twice saw the same samples"
    return Compared("same", remark=remark)


# --- what is wrong with it -----------------------------------------------------------------------


def _how(reference: Reference, steps: Sequence[SeenStep], first: SeenStep) -> str:
    same = [one for one in steps if one.attempt == first.attempt and one.step >= first.step]
    ours = [one.facts.data for one in same if one.facts.data is not None]
    theirs = {step: facts.data for step, facts in reference.trace.steps.items() if step > 0}
    at = f"from step {first.step} on"
    if found := _where(ours, theirs):
        start, length = found
        listed = f"{start}-{start + length - 1}" if length > 1 else f"{start}"
        batches = f"{text.plural(range(length), 'the batch of step', 'the batches of steps')}"
        if start < first.step:
            return f"{at} {batches} {listed} come again"
        return f"{at} {batches} {listed} come: those of steps {first.step}-{start - 1} are skipped"
    there = [data for step, data in theirs.items() if step >= first.step and data is not None]
    if sum(ours) % MODULUS == sum(there) % MODULUS:
        return f"{at} the same samples come in another order"
    return f"{at} other samples come than in the undisturbed job"


def _where(ours: Sequence[int], theirs: dict[int, int | None]) -> tuple[int, int] | None:
    """The step of the undisturbed job from which on it saw what we saw, and for how many steps:
    an epoch that is begun again is left at its end."""
    lengths = {start: _alike(ours, start, theirs) for start in theirs}
    best = max(lengths, key=lambda start: lengths[start], default=0)
    enough = best and lengths[best] >= min(2, len(ours))
    return (best, lengths[best]) if enough else None


def _alike(ours: Sequence[int], start: int, theirs: dict[int, int | None]) -> int:
    length = 0
    while length < len(ours) and theirs.get(start + length) == ours[length]:
        length += 1
    return length
