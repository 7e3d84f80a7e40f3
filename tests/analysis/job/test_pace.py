from __future__ import annotations

from typing import Any

import pytest

from holdfast.analysis.job import pace
from holdfast.analysis.job.pace import last_progress, slowed, stalled
from holdfast.analysis.scene.scene import Scene
from tests.run.scenes import NOW, a_beat, a_rank, a_scene, ended


def quiet(seconds: float, *, alive: float = 0.1, **beat: Any) -> Scene:
    """Nobody has stepped for so long; the counters moved `alive` seconds ago."""
    page = a_beat(step_at=NOW - seconds, **beat)
    return a_scene([a_rank(r, beat=page, alive_at=NOW - alive) for r in range(3)])


@pytest.mark.parametrize(
    ("seconds", "usual", "expected"),
    [
        (1.9, 0.05, False),
        (2.1, 0.05, True),
        (2.1, 1.0, False),
        (7.9, 1.0, False),
        (8.1, 1.0, True),
        (100.0, 30.0, False),
    ],
)
def test_longer_than_is_its_habit(seconds: float, usual: float, expected: bool) -> None:
    assert stalled(quiet(seconds, usual_step=usual)) is expected


@pytest.mark.parametrize("steps", [1, 2])
def test_two_steps_are_no_habit(steps: int) -> None:
    assert not stalled(quiet(9.0, steps=steps, alive=9.0))
    assert stalled(quiet(11.0, steps=steps, alive=9.0))
    assert not stalled(quiet(30.0, steps=steps, usual_step=5.0, alive=30.0))


def starting(seconds: float, *silent: float) -> Scene:
    page = a_beat(steps=0, step_at=0.0, usual_step=0.0)
    ranks = [a_rank(r, beat=page, alive_at=NOW - s) for r, s in enumerate(silent)]
    return a_scene(ranks, started_at=NOW - seconds)


def test_before_the_first_step() -> None:
    assert not stalled(starting(9.0, 8.0, 8.0))
    assert stalled(starting(12.0, 8.0, 0.1)), "one waits, one works"
    assert not stalled(starting(25.0, 0.1, 0.1)), "all compile"
    assert stalled(starting(61.0, 0.1, 0.1)), "waiting NCCL ranks look busy too"


def test_without_a_page_the_counters_tell() -> None:
    nobody = [a_rank(r, beat=None, alive_at=NOW - 4.0) for r in range(2)]
    assert stalled(a_scene(nobody, started_at=NOW - 20))
    busy = [a_rank(r, beat=None, alive_at=NOW) for r in range(2)]
    assert not stalled(a_scene(busy, started_at=NOW - 20))
    assert not stalled(a_scene([ended(0, 0, at=NOW - 9)], started_at=NOW - 20))


def test_clocks_that_were_started_again() -> None:
    """The machine slept for 20 s: nobody stepped, and it is nobody's fault."""
    slept = quiet(20.0, alive=20.0)
    assert stalled(slept)
    assert not stalled(slept, timers_since=NOW - 0.2)
    assert stalled(slept, timers_since=NOW - 3.0)
    assert last_progress(slept, timers_since=NOW - 3.0) == NOW - 3.0
    assert not stalled(starting(20.0, 20.0), timers_since=NOW - 0.2)


def test_slower_than_it_was() -> None:
    assert slowed(quiet(0.1, usual_step=0.25), 0.05)
    assert not slowed(quiet(0.1, usual_step=0.09), 0.05)
    assert not slowed(quiet(0.1, usual_step=0.25), 0.0)
    assert not slowed(quiet(0.1, usual_step=0.003), 0.001), "milliseconds are noise"


# --- pauses that are this job's habit ------------------------------------------------------------


def paused(seconds: float, *pauses: float) -> Scene:
    ranks = [a_rank(r, beat=a_beat(step_at=NOW - seconds)) for r in range(2)]
    return a_scene(ranks, pauses=pauses)


def test_a_rollout_like_those_before_it_is_habit() -> None:
    assert not pace.is_habit(paused(30.0))
    assert not pace.is_habit(paused(30.0, 60.0)), "once is chance"
    assert pace.is_habit(paused(30.0, 3.0, 60.0, 58.0))
    assert pace.is_habit(paused(86.0, 3.0, 60.0, 58.0))
    assert not pace.is_habit(paused(88.0, 3.0, 60.0, 58.0))
    assert pace.pause_between_looks(0.0, habit=True) == pace.LOOK_AT_LEAST
