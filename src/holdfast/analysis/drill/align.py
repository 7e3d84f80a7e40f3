"""At which step of the job did an attempt resume? Told by its weights; never guessed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from holdfast import text
from holdfast.analysis.drill.job_attempts import JobAttempt
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.trace import StepFacts, Trace, trace

NEAR = 0.25
"""of the way to the nearest other step: values that near to those of a step are that step's"""

FAR = 3.0
"""times the way of the longest step: weights that far from those of a step are not that step's"""


class ResumePoint(NamedTuple):
    step: int | None
    """0: from the start. None: not known"""
    by: Literal["nothing before it", "weights", "values", "optimizer", "data", ""] = ""
    why: str = ""
    """of None"""
    torn: bool = False
    """its ranks resumed from different steps"""


class AlignedAttempt(NamedTuple):
    attempt: JobAttempt
    resumed: ResumePoint
    trace: Trace | None
    """None where it is not known at which step it resumed"""
    furthest_before: int
    """step of any rank in the attempts before it"""

    @property
    def repeated(self) -> int | None:
        """Steps of those before it that this one did again."""
        if self.trace is None:
            return None
        return max(min(self.furthest_before, self.trace.last) - self.trace.base, 0)


def align(attempts: Sequence[JobAttempt], reference: Reference) -> list[AlignedAttempt]:
    aligned: list[AlignedAttempt] = []
    furthest = 0
    for attempt in attempts:
        known = [one.trace for one in aligned if one.trace]
        if any(one.attempt.taken for one in aligned):
            point = resume_point(attempt, [reference.trace, *known], reference, furthest)
        else:
            point = ResumePoint(0, "nothing before it")
        made = trace(attempt, point.step) if point.step is not None else None
        aligned.append(AlignedAttempt(attempt, point, made, furthest))
        furthest = max(furthest, made.last if made else 0)
    return aligned


def resume_point(
    attempt: JobAttempt, history: Sequence[Trace], reference: Reference, furthest: int
) -> ResumePoint:
    """`history`: the undisturbed job, and what this one did before. The latter matters where a job
    does not repeat its own bits: what it loads is what it has saved itself. `furthest`: the step
    that it had come to."""
    found = _found(attempt, history, reference)
    if found.step is not None and found.step > furthest + 1:  # the last one may not be recorded
        why = f"it seems to have resumed after step {found.step}, the job had come to {furthest}"
        return ResumePoint(None, why=why)
    return found


def _found(attempt: JobAttempt, history: Sequence[Trace], reference: Reference) -> ResumePoint:
    if not attempt.taken and not any(one.start for one in attempt.ranks.values()):
        return ResumePoint(None, why="it took no step")
    own = trace(attempt, 0)
    by_weights = _by_weights(own, history)
    if len(by_weights) == 1:
        return ResumePoint(by_weights.pop(), "weights")
    counted = _counted(attempt, reference)
    if by_weights:
        # None counted proves nothing: a plain SGD never counts.
        if counted and counted in by_weights:
            return ResumePoint(counted, "optimizer")
        steps = text.some_numbers(by_weights)
        return ResumePoint(None, why=f"the weights were the same after steps {steps}")
    if torn := _torn(own, history):
        return ResumePoint(None, why=torn, torn=True)
    return _without_weights(own, history, reference, counted)


def _without_weights(
    own: Trace, history: Sequence[Trace], reference: Reference, counted: int | None
) -> ResumePoint:
    near = _by_values(own, history)
    if near is not None:
        return ResumePoint(near, "values")
    if counted:
        return ResumePoint(counted, "optimizer")
    if counted == 0 and _far_from_all(own, history):
        # Neither weights nor optimizer come from any step that was seen: other first weights.
        return ResumePoint(0, "values")
    shift = _by_data(own, reference.trace)
    if shift is not None:
        return ResumePoint(shift, "data")
    return ResumePoint(None, why="its weights are not those of any step that was seen")


# --- by the weights' bits ------------------------------------------------------------------------


def _by_weights(own: Trace, history: Sequence[Trace]) -> set[int]:
    """Steps after which it may have resumed: where the weights before its first step fit several,
    those after it decide."""
    left: set[int] = set()
    for number in sorted(own.steps):
        fit = {
            step - number
            for past in history
            for step, facts in past.steps.items()
            if step >= number and _same_weights(own.steps[number], facts, own.world == past.world)
        }
        if not left:
            left = fit
        elif left & fit:
            left &= fit
        else:
            break  # it went another way from here on, which says nothing of where it began
        if len(left) <= 1:
            break
    return left


def _same_weights(one: StepFacts, other: StepFacts, same_world: bool) -> bool:  # noqa: FBT001
    if same_world:
        both = one.weights.keys() & other.weights.keys()
        return bool(both) and all(one.weights[rank] == other.weights[rank] for rank in both)
    # Another number of ranks: only where every rank holds all weights.
    digests = {*one.weights.values(), *other.weights.values()}
    return bool(one.weights and other.weights) and len(digests) == 1


def _torn(own: Trace, history: Sequence[Trace]) -> str:
    """What is said where every rank holds weights of a step, but not all of the same."""
    before = own.steps.get(0)
    if before is None:
        return ""
    found: dict[int, set[int]] = {}
    for rank, digest in before.weights.items():
        found[rank] = {
            step
            for past in history
            if past.world == own.world
            for step, facts in past.steps.items()
            if facts.weights.get(rank) == digest
        }
    if not found or not all(len(steps) == 1 for steps in found.values()):
        return ""
    steps_of = {rank: steps.pop() for rank, steps in found.items()}
    said = [
        f"{text.ranks(rank for rank, one in steps_of.items() if one == step)} at step {step}"
        for step in sorted(set(steps_of.values()))
    ]
    return "its ranks resumed at different steps: " + ", ".join(said)


# --- where bits do not repeat --------------------------------------------------------------------


def _counted(attempt: JobAttempt, reference: Reference) -> int | None:
    """By the optimizers of all ranks, where they agree."""
    counts = {one.start.optimizer_step for one in attempt.ranks.values() if one.start}
    count = counts.pop() if len(counts) == 1 else None
    return None if count is None else max(count - reference.optimizer_start, 0)


def _by_values(own: Trace, history: Sequence[Trace]) -> int | None:
    found = {step for past in history for step in _near(own, past)}
    return found.pop() if len(found) == 1 else None


def _near(own: Trace, past: Trace) -> set[int]:
    """The step whose values are clearly nearer to those before its first step than to those of any
    other step."""
    number = _first_values(own)
    if number is None or own.world != past.world:
        return set()
    away = {
        step: distance
        for step, facts in past.steps.items()
        if step >= number and (distance := _apart(own.steps[number], facts)) is not None
    }
    if not away:
        return set()
    nearest = min(away, key=lambda step: away[step])
    between = [
        gap
        for step, facts in past.steps.items()
        if step != nearest and (gap := _apart(facts, past.steps[nearest])) is not None
    ]
    near = bool(between) and away[nearest] < NEAR * min(between)
    return {nearest - number} if near else set()


def _far_from_all(own: Trace, history: Sequence[Trace]) -> bool:
    """Several steps away from the weights of every step: then they are those of no step, not even
    rounded."""
    number = _first_values(own)
    if number is None or any(past.world != own.world for past in history):
        return False
    for past in history:
        gaps = [_apart(own.steps[number], facts) for facts in past.steps.values() if facts.values]
        moves = [
            _apart(past.steps[step], past.steps[step - 1])
            for step in past.steps
            if step - 1 in past.steps
        ]
        known = [gap for gap in gaps if gap is not None]
        furthest = max((move for move in moves if move is not None), default=None)
        if furthest is None or len(known) < len(gaps) or min(known) <= FAR * furthest:
            return False
    return True


def _first_values(own: Trace) -> int | None:
    return min((step for step, facts in own.steps.items() if facts.values), default=None)


def _apart(one: StepFacts, other: StepFacts) -> float | None:
    both = one.values.keys() & other.values.keys()
    pairs = [
        abs(a - b)
        for rank in both
        if len(one.values[rank]) == len(other.values[rank])
        for a, b in zip(one.values[rank], other.values[rank], strict=True)
    ]
    return max(pairs, default=None)


def _by_data(own: Trace, past: Trace) -> int | None:
    """Where the first two batches, or more, follow each other only once in the whole job."""
    sums = [facts.data for step, facts in sorted(own.steps.items()) if step > 0]
    if len(sums) < 2 or None in sums:
        return None
    known = {step: facts.data for step, facts in past.steps.items()}
    fits = [
        base
        for base in range(past.last)
        if all(known.get(base + at) in (None, one) for at, one in enumerate(sums, 1))
        and all(known.get(base + at) == one for at, one in enumerate(sums[:2], 1))
    ]
    return fits[0] if len(fits) == 1 else None
