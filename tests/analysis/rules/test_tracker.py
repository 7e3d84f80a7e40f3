"""Two ranks that start at 100 s; all times are given."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import given

from holdfast.analysis.rules.rule import parse
from holdfast.analysis.rules.tracker import AGAIN, RuleHit, RuleNotice, RuleTracker

RANKS = (0, 1)


class Job:
    def __init__(self, **body: Any) -> None:
        self.tracker = RuleTracker(parse({"r": {"means": "it is bad", **body}}, "f"))
        self.tracker.begin(100.0)

    def line(self, at: float, rank: int = 0, text: str = "a line", **fields: Any) -> None:
        self.tracker.saw(RuleHit(rule="r", rank=rank, at=at, line=text, **fields))

    def due(self, now: float, *, until: float | None = None, living: Any = RANKS) -> list[Any]:
        found = self.tracker.notices(now, living, until=now if until is None else until)
        return [(one.what, one.ranks, one.reason) for one in found]


def test_lines_of_several_ranks_are_one_notice() -> None:
    job = Job(pattern="x")
    job.line(110.0, rank=1, text="first")
    job.line(110.2, rank=0, count=3)
    assert job.due(110.5) == []
    (found,) = job.tracker.notices(111.1, RANKS, until=111.1)
    assert found == RuleNotice(
        rule="r", severity="warning", what="line", ranks=(0, 1), quote="first", count=4,
        reason="it is bad: 4 lines of ranks 0-1",
    )  # fmt: skip


def test_a_rule_does_not_speak_all_the_time() -> None:
    """One line a second for an hour: at 1 s, then after 60, 120, 240, … seconds."""
    job, spoke = Job(pattern="x"), []
    for second in range(101, 3701):
        job.line(float(second))
        spoke += [second] * len(job.due(float(second)))
    assert spoke == [102, 162, 282, 522, 1002, 1962]


def test_the_end_of_an_attempt_tells_what_was_not_told() -> None:
    job = Job(pattern="x")
    job.line(110.0)
    assert job.due(111.0)
    job.line(112.0)
    assert job.due(113.0) == []
    assert [one.count for one in job.tracker.last_lines()] == [1]
    assert job.tracker.last_lines() == []


def test_only_numbers_beyond_the_limit_are_told_with_the_worst() -> None:
    job = Job(pattern="(x)", above=100)
    job.line(110.0, value=3.0)
    assert job.due(112.0) == []
    job.line(113.0, rank=0, value=101.0, exceeded="above 100")
    job.line(113.5, rank=1, value=5e9, exceeded="above 100", text="loss 5e9")
    (found,) = job.tracker.notices(115.0, RANKS, until=115.0)
    assert found.reason == "it is bad: 5e+09 is above 100 (2 lines of ranks 0-1)"
    assert (found.what, found.quote) == ("number", "loss 5e9")


def test_a_line_that_must_come_is_missed_once() -> None:
    job = Job(pattern="x", within=120)
    assert job.due(219.0) == []
    (found,) = job.due(221.0)
    assert found[:2] == ("missing", ())
    assert found[2] == "it is bad: no rank has written its line within 2 minutes of the start"
    assert job.due(900.0) == []
    job.line(1000.0)
    assert job.due(1000.1) == [("back", (), "a rank wrote its line again after 15 minutes")]
    assert job.due(5000.0) == []  # `every` was not asked for


def test_a_line_that_comes_in_time_is_no_news() -> None:
    job = Job(pattern="x", within=120)
    job.line(219.0, rank=1)
    assert job.due(9999.0) == []


def test_a_line_must_recur_from_its_first_one_on() -> None:
    job = Job(pattern="x", every=300)
    assert job.due(5000.0) == []  # the start may take as long as it takes
    job.line(5000.0)
    job.line(5290.0)
    assert job.due(5589.0) == []
    assert [one[:2] for one in job.due(5591.0)] == [("stopped", ())]


def test_each_rank_can_be_asked() -> None:
    job = Job(pattern="x", every=300, within=120, ranks="each")
    job.line(110.0, rank=0)
    (found,) = job.due(221.0)
    assert found == (
        "missing", (1,), "it is bad: rank 1 has not written its line within 2 minutes of the start"
    )  # fmt: skip
    job.line(400.0, rank=1)
    assert [one[:2] for one in job.due(420.0)] == [("back", (1,)), ("stopped", (0,))]


def test_named_ranks_alone_count() -> None:
    job = Job(pattern="x", within=10, ranks=[1])
    job.line(101.0, rank=0)
    assert [one[:2] for one in job.due(120.0)] == [("missing", (1,))]


def test_a_rank_that_ended_owes_no_line() -> None:
    job = Job(pattern="x", within=10, ranks="each")
    assert [one[1] for one in job.due(120.0, living=[0])] == [(0,)]
    assert job.due(120.0, living=[]) == []


def test_text_that_was_not_searched_yet_is_no_absence() -> None:
    job = Job(pattern="x", within=10)
    assert job.due(120.0, until=105.0) == []
    assert len(job.due(120.0, until=112.0)) == 1


def test_a_machine_that_slept_gives_the_ranks_their_time_again() -> None:
    job = Job(pattern="x", within=10, every=10)
    job.tracker.restart_timers(500.0)
    assert job.due(509.0) == []
    job.line(509.0)
    job.tracker.restart_timers(600.0)
    assert job.due(609.0) == []
    assert len(job.due(611.0)) == 1


def test_an_attempt_starts_from_nothing() -> None:
    job = Job(pattern="x", within=10)
    assert job.due(120.0)
    job.tracker.begin(200.0)
    assert job.due(209.0) == []
    assert len(job.due(211.0)) == 1


@given(st.lists(st.tuples(st.floats(0, 5000), st.sampled_from(RANKS)), max_size=60))
def test_no_line_is_lost_and_no_rule_speaks_often(lines: list[tuple[float, int]]) -> None:
    job, told, spoke = Job(pattern="x"), 0, 0
    waiting = sorted((100 + at, rank) for at, rank in lines)
    for second in range(100, 5110, 5):
        while waiting and waiting[0][0] <= second:
            at, rank = waiting.pop(0)
            job.line(at, rank)
        for one in job.tracker.notices(float(second), RANKS, until=float(second)):
            told, spoke = told + one.count, spoke + 1
    told += sum(one.count for one in job.tracker.last_lines())
    assert told == len(lines)
    assert spoke <= 2 + 5010 / AGAIN / 2
