"""After which steps of the job there was a checkpoint: as its runner was told, or by the disk."""

from __future__ import annotations

import bisect
from collections.abc import Mapping, Sequence

from holdfast.analysis.drill import checkpoints
from holdfast.analysis.drill.outcome import Observed
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.trace import Trace

COARSE = 0.02
"""seconds by which the kernel's time of a file may lag behind a clock that is read"""


def steps_saved(observed: Observed, reference: Reference) -> tuple[int, ...]:
    """Of the undisturbed job."""
    return saved_when_listed(observed, reference.trace)


def saved_when_listed(observed: Observed, trained: Trace) -> tuple[int, ...]:
    """Steps whose checkpoints were there, the oldest first; `trained` is the attempt that had saved
    them."""
    times = {step: facts.t for step, facts in trained.steps.items() if step > trained.base}
    last = max(times, default=0)
    if observed.saved and max(observed.saved) <= last:
        return tuple(sorted(set(observed.saved)))
    found = checkpoints.find(observed.listing)
    whole = found.whole if found else ()
    began = sorted((one.t, trained.base + one.step)
                   for rank in observed.attempts for one in rank.saving)  # fmt: skip
    steps = {_step(entry.number, when, times, began) for entry in whole for when in entry.times}
    return tuple(sorted(step for step in steps if step is not None and step > 0))


def _step(
    number: int | None,
    when: float,
    times: Mapping[int, float],
    began: Sequence[tuple[float, int]],
) -> int | None:
    """`began`: when ranks began to write in their steps, and after which one."""
    steps = sorted(times)
    came_to = bisect.bisect_right([times[step] for step in steps], when)
    if not came_to:
        return None
    reached = steps[came_to - 1]
    if number is not None and 0 < number <= reached:
        return number
    begun = bisect.bisect_right(began, when + COARSE, key=lambda one: one[0])
    if begun and abs(reached - began[begun - 1][1]) <= 1:
        return began[begun - 1][1]
    # A save in the background ends some time after its step: the one before it is certain.
    return max(reached - 1, 1)
