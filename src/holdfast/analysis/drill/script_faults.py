"""What a script does not restore, told by what differs first after it resumed."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.drill import recovery
from holdfast.analysis.drill.align import AlignedAttempt
from holdfast.analysis.drill.case import Case
from holdfast.analysis.drill.compare import Compared


class ScriptFault(NamedTuple):
    slug: str
    fix: str


DATA = ScriptFault(
    "data-position-lost",
    "save and restore the position of the sampler or loader (holdfast.Sampler in "
    "holdfast.State(…, data=sampler) does), or the state of the random generator (torch's, "
    "numpy's) where the script draws its batches without one",
)
RANDOM = ScriptFault(
    "checkpoint-lacks-state",
    "random numbers (dropout…) are not those of the undisturbed job: save and restore torch's RNG "
    "state of every rank; holdfast.State does",
)
OPTIMIZER = ScriptFault(
    "checkpoint-lacks-state",
    "the optimizer or the learning rate's scheduler does not continue where it was: save and "
    "restore their state_dict(); holdfast.State(model, optimizer, scheduler=…) does",
)
WEIGHTS = ScriptFault(
    "checkpoint-lacks-state",
    "the weights that were loaded are not those of that step: save and load the whole state_dict() "
    "of the model, in full precision",
)
AS_A_RESULT = ScriptFault("", "")
"""of other samples: that is said once"""


def script_fault(case: Case, data: Compared, loss: Compared, weights: Compared) -> ScriptFault:
    """Why loss or weights differ after a resume."""
    differ = {one.step for one in (loss, weights) if one.verdict == "differs"} - {None}
    first = min((step for step in differ if step is not None), default=None)
    if first is None or (data.step is not None and data.step <= first + 1):
        return AS_A_RESULT
    resumed = _resumed_before(case, first)
    if resumed is None or resumed.trace is None:
        return AS_A_RESULT
    if case.injection.costs_saves and resumed.trace.base > case.newest_whole:
        return ScriptFault("checkpoint-corrupt", case.injection.fails_without or recovery.KEEP_TWO)
    if weights.step == resumed.trace.base:
        return WEIGHTS
    # Weights and inputs of this step were right. Where its loss was, too, its update was not.
    return OPTIMIZER if weights.step == first and loss.step != first else RANDOM


def _resumed_before(case: Case, step: int) -> AlignedAttempt | None:
    found = [one for one in case.trained_after if one.trace and one.trace.base <= step]
    return found[0] if found else None
