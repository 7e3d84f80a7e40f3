"""What `holdfast run` exits with, from what was seen and how ranks ended afterwards."""

from __future__ import annotations

from signal import SIGABRT, SIGKILL, SIGTERM
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.analysis.scene.scene import Death, ExitCall, RankView
from holdfast.findings import Verdict
from holdfast.run.launch import exit_codes
from holdfast.system.deaths import UNKNOWN
from tests.run.scenes import (
    IN_BACKWARD,
    NOW,
    a_beat,
    a_rank,
    a_scene,
    an_activity,
    held_up,
    waiting,
    words,
)

RAISED = a_rank(1, words=words("ValueError"))


def gone(code: int) -> Death:
    return Death(code=code, at=NOW)


def culprits(*ranks: int) -> Verdict:
    return Verdict(code="HOLD", slug="any", ranks=ranks, reason="", certain=True)


@pytest.mark.parametrize(
    ("culprit", "after", "code"),
    [
        pytest.param(a_rank(1, death=gone(7)), None, 7, id="exited before the verdict"),
        pytest.param(a_rank(1, death=gone(-SIGKILL)), None, 137, id="killed before the verdict"),
        pytest.param(a_rank(1, death=gone(UNKNOWN)), None, 1, id="exited, nobody knows how"),
        pytest.param(RAISED, UNKNOWN, 1, id="raised, then exited, nobody knows how"),
        pytest.param(RAISED, None, 1, id="raised, and still exits"),
        pytest.param(RAISED, 1, 1, id="raised, exited later"),
        pytest.param(RAISED, 3, 3, id="raised, exited later with its own code"),
        pytest.param(RAISED, -SIGABRT, 134, id="raised, then crashed on its way out"),
        pytest.param(RAISED, -SIGKILL, 1, id="raised, killed by us when the grace was over"),
        pytest.param(RAISED, -SIGTERM, 1, id="raised, told to stop meanwhile"),
        pytest.param(a_rank(1), -SIGKILL, 124, id="stuck, ended by us"),
    ],
)
def test_a_culprits_code_is_its_own(culprit: RankView, after: int | None, code: int) -> None:
    scene = a_scene([a_rank(0), culprit])
    # the victim, which we ended, never counts
    ends = {0: gone(-SIGTERM)} | ({} if after is None else {1: gone(after)})
    assert exit_codes.exit_code_of(culprits(1), scene, ends) == code


def test_without_a_culprit_the_first_that_failed_counts() -> None:
    scene = a_scene([a_rank(0), a_rank(1, death=gone(9)), RAISED])
    assert exit_codes.exit_code_of(None, scene, {}) == 9
    assert exit_codes.exit_code_of(None, a_scene([a_rank(0), RAISED]), {1: gone(4)}) == 4
    assert exit_codes.exit_code_of(None, a_scene(), {}) == 124


CALL = ExitCall(at=NOW - 2, by="sys.exit", code=3, where="train.py:9")
EXITS = a_beat(leaving_at=NOW - 2, exit_call=CALL, step_at=NOW - 3)


@pytest.mark.parametrize(
    ("view", "may_finish"),
    [
        (a_rank(0), False),
        (a_rank(0, words=words("ValueError")), True),
        (a_rank(0, beat=EXITS), True),
        (a_rank(0, beat=a_beat(leaving_at=NOW - 2)), True),  # it leaves well
        (a_rank(0, words=words("ValueError"), activity=an_activity(state="T")), False),
        (a_rank(0, words=words("ValueError"), death=gone(1)), False),
        # all handlers are done, and with them the beat
        (a_rank(0, beat=replace(EXITS, phase="exit", beat_at=NOW - 5)), True),
        (a_rank(0, beat=replace(EXITS, phase="exit", beat_at=NOW - 11)), False),
    ],
)
def test_a_rank_on_its_way_out_may_finish_its_exit_handlers(
    view: RankView, may_finish: bool
) -> None:
    assert exit_codes.exiting(a_scene([view])) == ({0} if may_finish else set())


@pytest.mark.parametrize(("after", "code"), [(None, 3), (3, 3), (-SIGKILL, 3), (7, 7)])
def test_a_rank_that_called_exit_has_the_code_it_gave(after: int | None, code: int) -> None:
    ends = {} if after is None else {0: gone(after)}
    assert exit_codes.exit_code_of(culprits(0), a_scene([a_rank(0, beat=EXITS)]), ends) == code


AT_WORK = {"alive_at": NOW - 1}
BLOCKED = {"recorder": waiting(), "stack": IN_BACKWARD}
OVER = {**AT_WORK, "beat": a_beat(step_at=NOW - 600, limit_name="step", limit_until=NOW - 60)}


@pytest.mark.parametrize(
    ("culprit", "at_once"),
    [
        pytest.param({}, True, id="silent for ten minutes"),
        pytest.param(AT_WORK, False, id="at work, maybe saving"),
        pytest.param({**AT_WORK, "activity": an_activity(state="T")}, True, id="stopped"),
        pytest.param({**AT_WORK, **BLOCKED}, True, id="blocked in a collective"),
        pytest.param(OVER, True, id="over its deadline"),
        pytest.param({**AT_WORK, "death": gone(-SIGKILL), "activity": None}, True, id="dead"),
    ],
)
def test_a_culprit_at_work_is_asked_first(culprit: dict[str, Any], at_once: bool) -> None:
    scene = held_up({1: culprit}, seconds=600.0)
    killed = exit_codes.to_kill_at_once(culprits(1), scene)
    assert killed == ({1} if at_once else set()), "and never a victim"
