"""Whether an attempt resumed or started from scratch, from what was seen before its first step."""

from __future__ import annotations

import pytest

from holdfast.analysis.scene.attempt_start import infer, of_attempt
from holdfast.analysis.scene.checkpoints import CheckpointAccount, FirstStepState
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
    (first(), first(1, loaded=True), "unknown", True),  # a load that changed nothing?
    # Parameters that never change: frozen ones, or a loss of 0. They are equal after any start.
    (first(moved=False), first(1), "zero", False),
    (first(moved=False), first(1, loaded=True), "resumed", False),
    (first(moved=False, loaded=True), first(1, loaded=True), "unknown", True),
    (first(moved=False), first(1, other_ways=True), "unknown", True),
]


@pytest.mark.parametrize(("before", "now", "what", "sure"), STARTS)
def test_how_an_attempt_started(
    before: FirstStepState | None, now: FirstStepState, what: str, sure: bool
) -> None:
    start = infer(before, now)
    assert (start.what, start.sure) == (what, sure), start


def test_an_attempt_without_a_step_does_not_hide_that_parameters_change() -> None:
    killed_at_once, trained = first(moved=False), first(1)
    account = CheckpointAccount(first_steps=(killed_at_once, trained, first(2)))
    began = of_attempt(account, 2)
    assert began is not None
    assert (began.what, began.sure) == ("zero", True)
