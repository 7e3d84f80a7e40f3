"""How far a writer counts on after a line."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.logs.wreckage import LogLine
from holdfast.explain.read.step_counts import StepCounts


def a_line(number: int, text: str = "", rank: int | None = None) -> LogLine:
    return LogLine(text=text, source="job.log", number=number, rank=rank)


@given(st.lists(st.integers(0, 9), max_size=30), st.integers(0, 31))
def test_what_counts_is_each_value_above_all_before_it(values: list[int], start: int) -> None:
    counts = StepCounts()
    for number, value in enumerate(values, start=1):
        counts.note(a_line(number, f"step {value}"))
    highest, expected = -1, 0
    for value in values[start:]:
        if value > highest:
            highest, expected = value, expected + 1
    assert counts.after(a_line(start), start)[0] == expected


def test_a_known_writer_is_compared_with_itself() -> None:
    counts = StepCounts()
    for number in range(1, 6):
        counts.note(a_line(number, f"epoch {number}", rank=0))
    assert counts.after(a_line(0, rank=0), 0) == (5, 5)
    assert counts.after(a_line(0, rank=1), 0) == (0, 0)
    assert counts.after(a_line(0), 2) == (3, 5)


@pytest.mark.parametrize(
    ("text", "counts"),
    [
        ("step 3 loss 0.1", True),
        ("[Epoch 3/10] acc 0.5", True),
        ("iteration       30/  500 | elapsed", True),
        ("{'loss': 1.2, 'epoch': 0.31}", True),
        (" 12%|#2   | 12/100 [00:03<00:20,  4.1it/s]", True),
        ("global_step=7", True),
        ("Retry 2 of 5", False),
        ("ValueError in step 3", False),
        ('  File "step.py", line 3, in step 3', False),
        ("footstep 3", False),
    ],
)
def test_lines_that_count(text: str, counts: bool) -> None:
    found = StepCounts()
    found.note(a_line(1, text))
    assert (found.after(a_line(0), 0)[0] == 1) == counts
