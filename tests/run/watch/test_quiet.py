"""`holdfast run` leaves healthy jobs alone; the whole table: `python -m tools.quiet_table`."""

from __future__ import annotations

import pytest

from tests.torch_version import needs_live_recorders
from tools.quiet_cases import CASES
from tools.quiet_table import play


@needs_live_recorders
def test_a_save_is_told_about_and_left_alone() -> None:
    outcome = play(CASES["save"], scale=0.3)
    assert not outcome.problems, outcome.screen
    assert {tuple(notice["ranks"]) for notice in outcome.notices} == {(0,)}
    assert any("save_checkpoint() at quiet_pauses.py" in n["reason"] for n in outcome.notices)


@pytest.mark.long
def test_a_rank_that_leaves_when_nobody_needs_it_may_go() -> None:
    outcome = play(CASES["leave-early"], scale=0.3)
    assert not outcome.problems, outcome.screen
    assert not outcome.notices


@pytest.mark.long
def test_a_suspended_machine_is_no_frozen_rank() -> None:
    """Longer than a rank alone would be given."""
    outcome = play(CASES["suspended"], scale=0.25)
    assert not outcome.problems, outcome.screen


@pytest.mark.long
def test_a_clock_that_is_set_an_hour_ahead_ends_nothing() -> None:
    """The flight recorder keeps wall time: the wait of a few seconds seems to be one of an hour."""
    outcome = play(CASES["clock"], scale=0.2)
    if outcome.skipped:
        pytest.skip(outcome.skipped)
    assert not outcome.problems, outcome.screen
    assert {tuple(notice["ranks"]) for notice in outcome.notices} == {(0,)}
