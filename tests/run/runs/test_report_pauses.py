"""Limits that leave room for the longest pause a job came back from."""

from __future__ import annotations

import pytest

from holdfast.run.runs import report_pauses
from tests.run.journals import record


@pytest.mark.parametrize(
    ("pause", "limit"), [(0, 0), (4.9, 0), (5, 60), (30, 60), (30.1, 120), (84, 180), (900, 1800)]
)
def test_a_limit_leaves_room(pause: float, limit: float) -> None:
    assert report_pauses.suggested(pause) == limit


@pytest.mark.parametrize(
    ("pause", "timeout", "patience", "said"),
    [
        (84, 1800, 0, "would end a real hang sooner than the group's timeout of 30 min"),
        (84, 1800, 0, "; `--patience 180` "),
        (84, 1800, 0, "the job came back from: 84 s, in evaluate() at evals.py:12"),
        (84, 120, 0, "leaves little room: `init_process_group(timeout=timedelta(seconds=180))`"),
        (84, 0, 0, "longest pause the job came back from: 84 s, in evaluate() at evals.py:12"),
        (84, 180, 0, "in evaluate() at evals.py:12"),
        (84, 1800, 600, ""),
        (2, 1800, 0, ""),
    ],
)
def test_what_is_suggested(pause: float, timeout: float, patience: float, said: str) -> None:
    told = list(
        report_pauses.lines(
            [
                record("launch", world=2, patience=patience),
                record(
                    "end",
                    exit_code=0,
                    longest_pause=pause,
                    pause_at="in evaluate() at evals.py:12",
                    group_timeout=timeout,
                ),
            ]
        )
    )
    assert len(told) == bool(said)
    assert said in "".join(told)
