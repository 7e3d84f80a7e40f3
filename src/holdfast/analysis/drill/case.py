"""One drill, ready to be judged: who began when, where each attempt resumed, what was compared."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.drill.align import AlignedAttempt, align
from holdfast.analysis.drill.compare import SeenStep
from holdfast.analysis.drill.injection import Injection
from holdfast.analysis.drill.job_attempts import job_attempts
from holdfast.analysis.drill.outcome import Observed
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.drill.saves import saved_when_listed

CLOCKS = 1.0
"""seconds by which what happened and when the drill noted it may be apart"""


class Case(NamedTuple):
    rehearsal: Rehearsal
    injection: Injection
    reference: Reference
    observed: Observed
    attempts: list[AlignedAttempt]
    fault_at: float

    @property
    def after(self) -> list[AlignedAttempt]:
        """Attempts that began after the fault, because of it."""
        return [one for one in self.attempts[1:] if one.attempt.began >= self.fault_at - CLOCKS]

    @property
    def trained_after(self) -> list[AlignedAttempt]:
        return [one for one in self.after if one.attempt.taken]

    def seen(self) -> list[SeenStep]:
        """Every step that is compared with the undisturbed job, those done twice twice: all but
        what a broken attempt did between the fault and its end."""
        ended = self.broken if self.after else []
        return [
            SeenStep(
                step=step,
                facts=facts,
                world=one.trace.world,
                before_fault=facts.t < self.fault_at,
                attempt=number,
                taken=step > one.trace.base,
            )
            for number, one in enumerate(self.attempts)
            if one.trace
            for step, facts in sorted(one.trace.steps.items())
            if facts.t < self.fault_at or one not in ended
        ]

    @property
    def broken(self) -> list[AlignedAttempt]:
        """Attempts that the fault came upon."""
        if not self.rehearsal.at_step:
            return []
        return [one for one in self.attempts if one not in self.after]

    @property
    def saved(self) -> tuple[int, ...]:
        """Steps whose checkpoints were there when the fault came."""
        first = self.attempts[0].trace if self.attempts else None
        return saved_when_listed(self.observed, first) if first else ()

    @property
    def newest_whole(self) -> int:
        """Step of the newest checkpoint that the fault left whole; 0: none."""
        saved, damaged = self.saved, self.injection.costs_saves
        return saved[-1 - damaged] if len(saved) > damaged else 0

    @property
    def waits_since(self) -> float:
        """When the rank came to the step of the fault, which may be a moment before it."""
        gates = [one.gate for one in self.observed.attempts if one.gate]
        return min([self.fault_at, *(gate.t for gate in gates)])

    @property
    def furthest(self) -> int:
        """Step that the job has come to in the end, as far as that is known."""
        return max((one.trace.last for one in self.attempts if one.trace), default=0)


def case_of(
    rehearsal: Rehearsal, injection: Injection, reference: Reference, observed: Observed
) -> Case | None:
    """None when the fault never came."""
    attempts = align(job_attempts(observed.attempts, observed.starts), reference)
    fault_at = observed.injected
    if fault_at is None:
        # What the witness does inside the rank is there when it has come to its step.
        gates = [one.gate for one in observed.attempts if one.began.rank == rehearsal.rank]
        fault_at = min((gate.t for gate in gates if gate and gate.how != "wait"), default=None)
    if fault_at is None:
        return None
    return Case(rehearsal, injection, reference, observed, attempts, fault_at)
