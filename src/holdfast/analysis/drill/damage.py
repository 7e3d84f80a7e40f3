"""Did the script load the damaged checkpoint as if it were whole?

A flipped bit may sit in an optimizer's moments: the weights that were loaded are right, and the
first step from them is not. What a resume from that step should give is known from the other drills
of the same job, which resumed without damage.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.analysis.drill.case import Case
from holdfast.analysis.drill.host_acts import DamageCheckpoint
from holdfast.analysis.drill.quantities import LOSS, WEIGHTS
from holdfast.analysis.drill.trace import StepFacts, Trace


class LoadedDamage(NamedTuple):
    step: int
    """of the damaged checkpoint, at which it resumed"""
    seen: str = ""
    """that the damage was loaded; '' where that was not seen"""
    same: bool = False
    """it trained on exactly as without damage, as far as both were seen"""

    @property
    def remark(self) -> str:
        """Of one that was not seen to be loaded."""
        at = f"it resumed at step {self.step}, whose checkpoint was damaged"
        if self.same:
            return f"{at}, just as without damage: there is a second copy, or that part is not used"
        return f"{at}; whether it loaded the damage cannot be told by this drill alone"


def resumes_without_damage(case: Case) -> tuple[Trace, ...]:
    """For the other drills of this job."""
    if _damages(case):
        return ()
    return tuple(one.trace for one in case.trained_after if one.trace)


def loaded_damage(
    case: Case, undamaged: Sequence[Trace], *, repeats: bool | None
) -> LoadedDamage | None:
    """None where it did not resume from what was damaged."""
    costs, saved = case.injection.costs_saves, case.saved
    if not _damages(case) or not 0 < costs <= len(saved):
        return None
    for one in case.trained_after:
        if one.trace and one.trace.base >= saved[-costs]:
            return _loaded(case, one.trace, undamaged, repeats=repeats)
    return None


def saved_too_little(case: Case) -> str:
    """Why nothing was rehearsed: a job that saves in the background had not come as far as the
    undisturbed one, and what was damaged was all that it had saved."""
    saved = case.observed.saved  # as reported by its runner: the others save in their steps
    if not _damages(case) or not 0 < len(saved) <= case.injection.costs_saves:
        return ""
    return (
        f"only the checkpoint of step {saved[-1]} was there {case.rehearsal.when}, and the "
        "undisturbed job had more: there was none to fall back to"
    )


def _damages(case: Case) -> bool:
    return isinstance(case.injection.act, DamageCheckpoint)


def _loaded(
    case: Case, resumed: Trace, undamaged: Sequence[Trace], *, repeats: bool | None
) -> LoadedDamage:
    alike = [one for one in undamaged if (one.base, one.world) == (resumed.base, resumed.world)]
    if _agree(alike) or (repeats and len(alike) == 1):
        found = _first_difference(resumed, alike[0])
        seen = f"{found}, unlike the same resume without damage" if found else ""
        return LoadedDamage(resumed.base, seen, same=not found)
    before = case.attempts[0].trace
    facts = resumed.steps.get(resumed.base)
    saved = before.steps.get(resumed.base) if before and before.world == resumed.world else None
    if facts and saved and WEIGHTS.equal(facts, saved) is False:
        seen = f"{WEIGHTS.show(facts, saved)} from those that were saved"
        return LoadedDamage(resumed.base, seen)
    return LoadedDamage(resumed.base)


def _agree(traces: Sequence[Trace]) -> bool:
    return len(traces) > 1 and all(not _first_difference(one, traces[0]) for one in traces[1:])


def _first_difference(one: Trace, other: Trace) -> str:
    """'' where all that both have seen is equal, bit for bit."""
    for step in _common(one.steps, other.steps):
        ours, theirs = one.steps[step], other.steps[step]
        for quantity in (WEIGHTS, LOSS):
            if quantity.equal(ours, theirs) is False and _same_samples(ours, theirs):
                return f"at step {step} {quantity.show(ours, theirs)}"
        if not _same_samples(ours, theirs):
            return ""  # from here on it may differ for that reason
    return ""


def _same_samples(ours: StepFacts, theirs: StepFacts) -> bool:
    return None in (ours.data, theirs.data) or ours.data == theirs.data


def _common(one: Iterable[int], other: Iterable[int]) -> list[int]:
    return sorted(set(one) & set(other))
