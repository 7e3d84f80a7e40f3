"""After which steps of the job there was a checkpoint: as its runner was told, or by the disk."""

from __future__ import annotations

import bisect
from collections.abc import Mapping

from holdfast.analysis.drill import checkpoints
from holdfast.analysis.drill.checkpoints import CheckpointEntry
from holdfast.analysis.drill.outcome import Observed
from holdfast.analysis.drill.reference import Reference
from holdfast.analysis.drill.trace import Trace


def steps_saved(observed: Observed, reference: Reference) -> tuple[int, ...]:
    """Of the undisturbed job. Where one file is written over and over, only its last state."""
    return saved_when_listed(observed, reference.trace)


def saved_when_listed(observed: Observed, trained: Trace) -> tuple[int, ...]:
    """Steps whose checkpoints were there, the oldest first; `trained` is the attempt that had saved
    them."""
    times = {step: facts.t for step, facts in trained.steps.items() if step > trained.base}
    last = max(times, default=0)
    if observed.saved and max(observed.saved) <= last:
        return tuple(sorted(set(observed.saved)))
    found = checkpoints.find(observed.listing)
    steps = {_step(entry, times) for entry in found.whole} if found else set()
    return tuple(sorted(step for step in steps if step is not None and step > 0))


def _step(entry: CheckpointEntry, times: Mapping[int, float]) -> int | None:
    steps = sorted(times)
    came_to = bisect.bisect_right([times[step] for step in steps], entry.changed)
    if not came_to:
        return None
    reached = steps[came_to - 1]
    if entry.number is not None and 0 < entry.number <= reached:
        return entry.number
    # A save in the background ends some time after its step: the one before it is certain.
    return max(reached - 1, 1)
