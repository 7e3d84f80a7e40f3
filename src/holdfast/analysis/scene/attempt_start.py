"""Whether an attempt resumed or started from the beginning, from what was seen of it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from holdfast.analysis.scene.checkpoints import CheckpointAccount, FirstStepState


class AttemptStart(NamedTuple):
    what: str
    """'zero', 'resumed' or 'unknown'"""
    why: str
    sure: bool = True


def infer(first: FirstStepState | None, now: FirstStepState) -> AttemptStart:
    """From what was seen before its first step and before the first step of the first attempt."""
    if now.optimizer_step:
        if first is None or now.optimizer_step > (first.optimizer_step or 0):
            return AttemptStart("resumed", f"its optimizer had counted {now.optimizer_step} steps")
    elif now.optimizer_step is None and first is not None and first.optimizer_step == 0:
        return AttemptStart("resumed", "its optimizer had state before the first step")
    if first is None:
        return AttemptStart("unknown", "the first attempt never reached a step to compare with")
    if now.digest and now.digest == first.digest and first.moved:
        if now.loaded and not first.loaded:
            return AttemptStart(
                "unknown",
                "it loaded something, and yet its parameters equal those the first attempt started "
                "with",
            )
        return AttemptStart("zero", "its parameters equal those the first attempt started with")
    return _by_what_was_loaded(first, now)


def _by_what_was_loaded(first: FirstStepState, now: FirstStepState) -> AttemptStart:
    """Its parameters say nothing: others than at first are restored ones, or were initialised again
    without a seed, and those that never change are the same after any start."""
    if not now.digest or not first.digest:
        return AttemptStart("unknown", "its parameters could not be read")
    if now.loaded and not first.loaded:
        return AttemptStart(
            "resumed", "it loaded something, and the first attempt did not", sure=False
        )
    if now.loaded or now.other_ways:
        return AttemptStart(
            "unknown", "it may have loaded a checkpoint, or pretrained weights only"
        )
    return AttemptStart(
        "zero", "nothing was loaded, and its optimizer has no state yet", sure=False
    )


def of_attempt(kept: CheckpointAccount, attempt: int) -> AttemptStart | None:
    """How that attempt of a run started; None when nothing was seen of it."""
    now = [record for record in kept.first_steps if record.attempt == attempt]
    before = [record for record in kept.first_steps if record.attempt < attempt]
    if not now:
        return None
    return infer(_first(before) if before else None, now[0])


def _first(attempts: Sequence[FirstStepState]) -> FirstStepState:
    """The first one may have ended before a step could change its parameters: another that began
    with the same ones speaks for it."""
    first = attempts[0]
    moved = any(one.moved and one.digest == first.digest for one in attempts)
    return msgspec.structs.replace(first, moved=moved)


def can_resume(kept: CheckpointAccount) -> bool:
    """Whether something was seen in this run that resumes the job: our library, or an optimizer
    that had counted steps or was loaded. Weights alone may be pretrained ones."""
    loaded = any(first.optimizer_step or first.optimizer_loaded for first in kept.first_steps)
    return bool(kept.resumed or kept.saves or kept.set_aside) or loaded
