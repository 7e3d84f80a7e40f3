"""How far a drill is, and how long it will still take."""

from __future__ import annotations

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.drill.outcome import BrokenPromise
from holdfast.view.drill_progress import (
    DrillProgress,
    about,
    block,
    of_reference,
    of_row,
    time_left,
)
from tests.view.sample_drills import BROKEN, GOES_ON, JOB, SKIPPED, a_report, a_row

TIMES = st.floats(0, 1e5)
NAMES = tuple(row.drill for row in a_report().rows)


def drawn(
    progress: DrillProgress, *, columns: int = 119, lines: int = 30, now: float = 0
) -> list[str]:
    return block(progress, columns=columns, lines=lines, now=now, colour=False)


@given(reference=TIMES, taken=st.lists(TIMES, max_size=30), left=st.integers(0, 40), run=TIMES)
def test_the_estimate_shrinks_while_a_drill_runs_and_ends_at_nothing(
    reference: float, taken: list[float], left: int, run: float
) -> None:
    estimate = time_left(reference, taken, left=left, running_for=run)
    assert 0 <= estimate <= time_left(reference, taken, left=left)
    assert time_left(reference, taken, left=0, running_for=run) == 0
    each = (sum(taken) + 2 * reference) / (len(taken) + 1)
    assert time_left(reference, taken, left=left) == pytest.approx(left * each)
    assert estimate >= (left - 1) * each * 0.999, "a slow one does not make the others faster"


def test_what_drills_took_counts_more_than_the_guess() -> None:
    assert time_left(10, [], left=3) == 60
    assert time_left(10, [5] * 99, left=100) == pytest.approx(515)


@pytest.mark.parametrize(
    ("left", "said"),
    [(0, "a few seconds"), (4.9, "a few seconds"), (38, "about 40 s"), (94, "about 95 s"),
     (170, "about 3 min"), (5300, "about 88 min"), (9000, "about 2.5 h")],
)  # fmt: skip
def test_the_time_left_is_rounded(left: float, said: str) -> None:
    assert about(left) == said


def test_shows_what_is_done_what_runs_and_what_follows() -> None:
    progress = DrillProgress(names=NAMES, rows=[a_row()], running="straggler", what="step 12 of 60",
                        since=100.0, reference=10.0)  # fmt: skip
    lines = drawn(progress, now=103.2)
    assert lines[2].startswith("rank-killed ")
    assert lines[2].endswith("kept")
    assert lines[3].split(maxsplit=1) == ["straggler", "step 12 of 60, 3 s"]
    assert lines[4].startswith("next: checkpoint-corrupt/truncated, external-sigterm")
    assert "straggler" not in lines[4]
    assert lines[5] == "[##----------------------] 1 of 9 drills, about 3 min left"


def test_says_how_many_are_broken_and_no_time_before_one_is_known() -> None:
    last = drawn(DrillProgress(names=NAMES, rows=list(BROKEN)))[-1]
    assert last == "[#####-------------------] 2 of 9 drills, 2 broken"
    assert drawn(DrillProgress(names=())) == ["[########################] 0 of 0 drills"]


@given(
    done=st.integers(0, 60),
    columns=st.integers(20, 200),
    lines=st.integers(8, 60),
    colour=st.booleans(),
)
def test_never_more_than_fits_the_terminal(
    done: int, columns: int, lines: int, *, colour: bool
) -> None:
    names = [f"drill-{number}" for number in range(61)]
    rows = [a_row(name) for name in names[:done]]
    progress = DrillProgress(
        names=names, rows=rows, running=names[done], what="x" * 300, reference=1
    )
    shown = block(progress, columns=columns, lines=lines, now=1, colour=colour)
    assert len(shown) <= max(lines, 9)
    if not colour or columns < 80:
        assert max(map(len, shown)) <= columns
    if done:
        assert any(names[done - 1] in line for line in shown), "the newest stays in sight"


def test_the_reference_in_a_line() -> None:
    assert of_reference(JOB, 11.4) == (
        "reference: 60 steps of 4 ranks in 11 s, checkpoints after steps 10, 20, 30 …; patience 8 s"
    )
    other = of_reference(msgspec.structs.replace(JOB, runner="torchrun"), 11.4)
    assert "patience" not in other, "it has none"
    bare = msgspec.structs.replace(JOB, ranks=1, saved_after=(), hosts=("a", "b"))
    assert of_reference(bare, 1).startswith(
        "reference: 60 steps of 1 rank on 2 lab hosts in 1.0 s, no checkpoint seen"
    )


def test_a_finished_drill_in_a_line() -> None:
    assert of_row(a_row()) == (
        "kept: noticed after 0.3 s, named rank-killed: rank 2, recovered after 4.1 s, 4 steps "
        "repeated, data, loss and weights identical"
    )
    assert of_row(GOES_ON).startswith("kept: noticed after 2.2 s, named straggler: rank 3, data,")
    assert of_row(SKIPPED[2]) == "skipped: no GPU here"
    wrong = of_row(BROKEN[1])
    assert wrong.startswith("BROKEN (name, loss, clean): ")
    assert "named straggler: rank 3 (wrong)" in wrong
    assert wrong.endswith("data identical, loss and weights differ")
    twice = (BrokenPromise(promise="name", seen="a"), BrokenPromise(promise="name", seen="b"))
    assert of_row(a_row(status="broken", broken=twice)).startswith("BROKEN (name): ")
