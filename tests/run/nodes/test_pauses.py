"""A training on two lab hosts goes on after a pause, as under torchrun; side by side:
tools/pauses_table.py."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest

from holdfast.drill.lab import Lab, LabUnavailableError
from tests.run.nodes import pause_rows
from tests.run.nodes.pause_rows import PauseRow

SUSPENDED = dataclasses.replace(pause_rows.BY_NAME["whole-job"], seconds=8.0)


@pytest.mark.lab
@pytest.mark.xdist_group("nodes-lab-jobs")
@pytest.mark.parametrize(
    "row",
    [
        SUSPENDED,
        *(
            pytest.param(row, marks=pytest.mark.long)
            for row in pause_rows.ROWS
            if row.name != SUSPENDED.name
        ),
    ],
    ids=lambda row: row.name,
)
def test_a_pause_is_named_and_nothing_is_ended_for_it(row: PauseRow, tmp_path: Path) -> None:
    try:
        Lab().close()
    except LabUnavailableError as problem:
        pytest.skip(str(problem))
    seen = pause_rows.play_pause(row, tmp_path)
    assert not seen.problems, f"{seen.problems}\n{seen.screen}"
    assert seen.attempts <= row.attempts, seen.screen
    assert seen.resumed is not None, seen.screen
    if row.name != "cable-range":
        assert any(word in seen.screen for word in ("did not run for", "is heard again", "notice["))
