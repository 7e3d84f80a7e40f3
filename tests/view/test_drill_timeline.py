"""What a drill's bar in time is made of."""

from __future__ import annotations

import itertools

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.drill.outcome import DrillRow, Happened, TrainedAttempt
from holdfast.view.drill_timeline import (
    WIDTH,
    Window,
    drawing,
    moment,
    segments,
    ticks,
    window,
)
from tests.view.sample_drills import BROKEN, GOES_ON, SKIPPED, a_report, a_row

TIMES = st.floats(1000, 1200)
HAPPENED = st.builds(
    Happened,
    t=TIMES,
    what=st.just("x"),
    kind=st.sampled_from(["start", "fault", "said", "action", "resume", "lifted", "end"]),
)


@st.composite
def attempts(draw: st.DrawFn) -> TrainedAttempt:
    times = sorted(draw(st.lists(TIMES, min_size=1, max_size=8)))
    first = draw(st.integers(1, 40))
    points = tuple((t, first + number, None) for number, t in enumerate(times[1:]))
    return TrainedAttempt(began=times[0], points=points)


ROWS = st.builds(
    lambda happened, trained: msgspec.structs.replace(
        SKIPPED[0], status="kept", timeline=tuple(happened), trained=tuple(trained)
    ),
    st.lists(HAPPENED, max_size=8),
    st.lists(attempts(), max_size=4),
)


def kinds(row: DrillRow) -> list[str]:
    return [one.kind for one in segments(row)]


def test_a_killed_rank_from_its_start_to_the_end() -> None:
    made = segments(a_row())
    assert [one.kind for one in made] == [
        *("starting", "training", "unnoticed", "down", "starting", "repeated", "training"),
        "ending",
    ]
    unnoticed, down, starting = made[2:5]
    assert unnoticed.end == pytest.approx(0.31)
    assert unnoticed.start == pytest.approx(-0.02)
    assert down.end == starting.start
    assert starting.end == pytest.approx(4.12), "back in training"


def test_no_step_is_repeated_where_none_was() -> None:
    assert "repeated" not in kinds(a_row(repeated=0))


def test_a_job_that_goes_on_has_no_gap() -> None:
    assert kinds(GOES_ON) == ["starting", "training", "ending"]


def test_a_job_that_never_came_back_is_not_shown_as_training() -> None:
    row = a_row()
    gone = msgspec.structs.replace(row, recovered=None, trained=row.trained[:1])
    assert kinds(gone) == ["starting", "training", "unnoticed", "down"]
    assert kinds(msgspec.structs.replace(gone, noticed=None))[2:] == ["unnoticed"]


def test_a_start_without_a_step_is_no_ending() -> None:
    row = GOES_ON
    again = Happened(t=row.timeline[-1].t + 1, what="started again", kind="start")
    end = Happened(t=again.t + 9, what="ended", kind="end")
    twice = msgspec.structs.replace(row, timeline=(*row.timeline[:-1], again, end))
    assert kinds(twice) == ["starting", "training", "ending", "starting"]


def test_of_a_skipped_one_nothing_is_drawn() -> None:
    assert segments(SKIPPED[0]) == []
    assert drawing(SKIPPED[0], Window(0, 1)) == ""


@given(ROWS)
def test_whatever_happened_the_bar_has_no_gap_and_no_overlap(row: DrillRow) -> None:
    made = segments(row)
    assert all(one.end > one.start for one in made)
    for before, after in itertools.pairwise(made):
        assert after.start == pytest.approx(before.end)


@given(st.lists(ROWS, max_size=4))
def test_everything_is_drawn_within_the_picture(rows: list[DrillRow]) -> None:
    shown = window(rows)
    assert shown.start <= 0 < shown.end
    assert all(0 <= shown.x(one.start) <= shown.x(one.end) <= WIDTH
               for row in rows for one in segments(row))  # fmt: skip
    for row in rows:
        assert "nan" not in drawing(row, shown)


def test_the_window_has_room_for_the_slowest_recovery() -> None:
    rows = a_report().rows
    shown = window(rows)
    assert shown.end > max(row.recovered or 0 for row in rows)
    hours = Happened(t=rows[0].timeline[-1].t + 7200, what="the job ended", kind="end")
    endless = msgspec.structs.replace(rows[0], timeline=(*rows[0].timeline, hours))
    assert window([endless]).end < 60, "two hours of training after it do not hide it"


@given(st.floats(-1e4, 0), st.floats(1, 1e5))
def test_ticks_are_few_and_include_the_fault(start: float, end: float) -> None:
    found = ticks(Window(start, end))
    assert 0 in found
    assert 1 <= len(found) <= 12
    assert found == sorted(set(found))
    assert all(start <= one <= end for one in found)


def test_moments_in_words() -> None:
    assert moment(4.12) == "4.1 s after the fault"
    assert moment(-7.0) == "7.0 s before the fault"


def test_segments_of_a_wrong_one_show_how_long_it_was_not_noticed() -> None:
    (longest,) = [one for one in segments(BROKEN[1]) if one.kind == "unnoticed"]
    assert longest.end == pytest.approx(8.4)
