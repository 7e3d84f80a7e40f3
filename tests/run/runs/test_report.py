"""The end of a run in figures, from its records alone."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.run.runs.report import lines, lost_in, steps_in, suggested_timeout, summarise


def record(t: float, kind: str, attempt: int = 0, steps: int = 0, **fields: Any) -> dict[str, Any]:
    return {"t": t, "kind": kind, "attempt": attempt, "steps": steps, **fields}


def verdict(t: float, attempt: int, steps: int, **fields: Any) -> dict[str, Any]:
    told = {
        "slug": "rank-killed",
        "ranks": [2],
        "victims": [0, 1, 3],
        "reason": "rank 2 was killed",
    }
    return record(t, "verdict", attempt, steps, **{**told, **fields})


TIMEOUT = (
    "longest wait that came back by itself: 21.0 s; that suggests a group timeout of 120 s "
    "(it is 1800 s): init_process_group(timeout=timedelta(seconds=120))"
)
LAUNCH = {"t": 100.0, "kind": "launch", "world": 4}
RESTARTED = [
    LAUNCH,
    record(150, "progress", 0, 700, longest_pause=14.0, group_timeout=1800.0),
    verdict(160, 0, 800),
    record(160, "action", 0, 800, action="restart", idle=2.0),
    record(168, "resume", 1, 1),
    record(260, "end", 1, 900, exit_code=0, longest_pause=21.0),
]


def test_a_quiet_run_is_one_line() -> None:
    quiet = [LAUNCH, record(105, "progress", 0, 3), record(341, "end", 0, 1200, exit_code=0)]
    assert lines(summarise(quiet)) == ["done: 1200 steps, 0 restarts, 4 minutes"]


def test_a_restart_is_counted_and_told() -> None:
    report = summarise(RESTARTED)
    assert (report.steps, report.restarts, report.attempts) == (1700, 1, 2)
    assert report.lost == 10.0
    assert (report.longest_pause, report.suggested_timeout) == (21.0, 120.0)
    assert lines(report) == [
        "done: 1700 steps, 1 restart, 2 minutes",
        "10.0 s lost between the last step before a restart and the first after it",
        TIMEOUT,
        "it had been held up: rank-killed on rank 2: rank 2 was killed",
    ]


def test_the_root_cause_is_the_last_line_of_a_failure() -> None:
    failed = [
        *RESTARTED[:-1],
        verdict(200, 1, 30, slug="restart-loop", reason="the same again", fix="mend train.py:88"),
        record(200, "action", 1, 30, action="stop"),
        record(203, "end", 1, 30, exit_code=137, reason="stopped: no restart can help"),
    ]
    told = lines(summarise(failed))
    assert told[0] == "ended with exit code 137: 830 steps, 1 restart, 1 minute"
    assert told[-4:] == [
        "earlier: rank-killed on rank 2: rank 2 was killed",
        "stopped: no restart can help",
        "help: mend train.py:88",
        "root cause: restart-loop on rank 2: the same again",
    ]


def test_the_reason_of_the_end_is_not_said_twice() -> None:
    failed = [
        LAUNCH,
        verdict(110, 0, 1),
        record(111, "end", exit_code=1, reason="rank 2 was killed"),
    ]
    assert sum("rank 2 was killed" in line for line in lines(summarise(failed))) == 1


def test_many_verdicts_do_not_push_the_cause_off_the_screen() -> None:
    failed = [LAUNCH, *(verdict(110 + n, n, 1) for n in range(30)), record(200, "end", exit_code=1)]
    told = lines(summarise(failed))
    assert len(told) < 10
    assert "25 earlier verdicts are in the journal" in told
    assert told[-1].startswith("root cause: ")


def test_two_restarts_in_one_gap_are_not_counted_twice() -> None:
    gap = [
        record(100, "progress", 0, 50),
        record(112, "action", 0, 50, action="restart", idle=2.0),
        record(120, "action", 1, 0, action="restart", idle=8.0),
        record(130, "resume", 2, 1),
    ]
    assert lost_in(gap) == 20.0
    assert lost_in([*gap[:3], record(125, "end", 1)]) == 15.0, "never came back"


def test_without_steps_nothing_is_claimed() -> None:
    told = lines(summarise([LAUNCH, record(103, "end", exit_code=0)]))
    assert told == ["done: steps unknown (no optimizer call seen), 0 restarts, 3 s"]
    assert lines(summarise([]))[0].startswith("no end was written")


@pytest.mark.parametrize(
    ("pause", "timeout"), [(0, 0), (4.9, 0), (5, 60), (20, 60), (20.1, 120), (90, 300), (600, 1800)]
)
def test_the_suggested_timeout_leaves_room(pause: float, timeout: float) -> None:
    assert suggested_timeout(pause) == timeout


FIELDS = st.dictionaries(
    st.sampled_from(["attempt", "steps", "idle", "action", "exit_code", "reason", "ranks", "slug"]),
    st.none() | st.booleans() | st.integers(-5, 50) | st.just("restart") | st.just([1, "x"]),
)
KINDS = st.sampled_from(["launch", "progress", "verdict", "action", "resume", "end", "other"])


@given(st.lists(st.tuples(st.floats(0, 1e9), KINDS, FIELDS)))
def test_any_journal_gives_a_report(seen: list[tuple[float, str, dict[str, Any]]]) -> None:
    records = [{**fields, "t": t, "kind": kind} for t, kind, fields in seen]
    report = summarise(records)
    assert report.lost >= 0
    assert report.seconds >= 0
    assert all(isinstance(line, str) for line in lines(report))


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 1000))))
def test_steps_add_up_whatever_the_order(seen: list[tuple[int, int]]) -> None:
    records = [record(0, "progress", attempt, steps) for attempt, steps in seen]
    assert steps_in(records) == steps_in(records[::-1])
    assert steps_in(records) == sum(
        max(steps for a, steps in seen if a == attempt) for attempt in {a for a, _ in seen}
    )
