"""Whether an attempt resumed or started from scratch, from what was seen before its first step."""

from __future__ import annotations

import pytest

from holdfast.analysis.scene.attempt_start import infer
from holdfast.analysis.scene.checkpoints import FirstStepState
from tests.faults.checkpoints.test_restart_from_zero import first

STARTS = [
    # (the first attempt, this one) -> what, and whether that is certain
    (first(), first(1), "zero", True),
    (first(loaded=True), first(1, loaded=True), "zero", True),  # pretrained weights, twice
    (
        first(optimizer_step=500),
        first(1, optimizer_step=500),
        "zero",
        True,
    ),  # the same step as at first
    (first(), first(1, digest="bbbb", optimizer_step=40, loaded=True), "resumed", True),
    (first(), first(1, optimizer_step=40), "resumed", True),  # frozen values: Adam knows better
    (first(optimizer_step=500), first(1, digest="bbbb", optimizer_step=540), "resumed", True),
    (first(), first(1, digest="bbbb", optimizer_step=None), "resumed", True),  # momentum
    (None, first(1, optimizer_step=40), "resumed", True),
    (first(), first(1, digest="bbbb", loaded=True), "resumed", False),  # plain SGD
    (first(loaded=True), first(1, digest="bbbb", loaded=True), "unknown", True),
    (first(), first(1, digest="bbbb", other_ways=True), "unknown", True),
    (first(digest=""), first(1, digest=""), "unknown", True),
    (first(digest=""), first(1), "unknown", True),
    (None, first(1), "unknown", True),
    (first(), first(1, digest="bbbb"), "zero", False),  # initialised again, without a seed
]


@pytest.mark.parametrize(("before", "now", "what", "sure"), STARTS)
def test_how_an_attempt_started(
    before: FirstStepState | None, now: FirstStepState, what: str, sure: bool
) -> None:
    start = infer(before, now)
    assert (start.what, start.sure) == (what, sure), start
