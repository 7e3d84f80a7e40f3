"""What an attempt did in each step, by the step's number in the whole job."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from holdfast.analysis.drill.job_attempts import JobAttempt
from holdfast.analysis.drill.records import StepRecord

MODULUS = 2**64
"""of the sums of samples' digests, as the witness takes them"""


class StepFacts(NamedTuple):
    """One step of all ranks, or the state before the first one. By rank; what was not seen is
    not in it."""

    t: float
    """when its last rank was done"""
    weights: Mapping[int, str] = {}
    values: Mapping[int, tuple[float, ...]] = {}
    losses: Mapping[int, float] = {}
    data: int | None = None
    """summed over all ranks; None where one is missing"""
    samples: int = 0
    ranks: frozenset[int] = frozenset()
    """that took it"""


class Trace(NamedTuple):
    """One attempt, from the step that it resumed after."""

    world: int
    base: int
    """the state before its first step is the one after this step of the job"""
    steps: Mapping[int, StepFacts]
    """`base` is the state before the first step"""

    @property
    def last(self) -> int:
        return max(self.steps, default=self.base)


def trace(attempt: JobAttempt, base: int) -> Trace:
    taken: dict[int, StepFacts] = {}
    if any(one.start for one in attempt.ranks.values()):
        taken[base] = _before(attempt)
    by_step: dict[int, dict[int, StepRecord]] = {}
    for rank, one in attempt.ranks.items():
        for record in one.steps:
            by_step.setdefault(record.step, {})[rank] = record
    for step, found in sorted(by_step.items()):
        taken[base + step] = _step(found, attempt.world)
    return Trace(attempt.world, base, taken)


def _before(attempt: JobAttempt) -> StepFacts:
    began = {rank: one.start for rank, one in attempt.ranks.items() if one.start}
    return StepFacts(
        t=max(start.t for start in began.values()),
        weights={rank: start.weights for rank, start in began.items() if start.weights},
        values={rank: start.values for rank, start in began.items() if start.values},
        ranks=frozenset(began),
    )


def _step(found: Mapping[int, StepRecord], world: int) -> StepFacts:
    sums = [record.data for record in found.values() if record.data is not None]
    return StepFacts(
        t=max(record.t for record in found.values()),
        weights={rank: record.weights for rank, record in found.items() if record.weights},
        values={rank: record.values for rank, record in found.items() if record.values},
        losses={rank: record.loss for rank, record in found.items() if record.loss is not None},
        data=sum(sums) % MODULUS if len(sums) == world else None,
        samples=sum(record.samples for record in found.values()),
        ranks=frozenset(found),
    )
