"""A run whose launcher was killed is found by the next one, and only by that."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.run.runs import leftovers, lost_run
from tests.run.runs_on_disk import a_run, living_run


def test_the_run_before_was_lost(tmp_path: Path) -> None:
    lost = a_run(tmp_path)
    found = lost_run.find(str(tmp_path))
    assert found is not None
    assert (found.folder, found.rebooted) == (lost.folder, False)
    assert leftovers.end(str(tmp_path)).lost == found


def test_the_machine_went_down(tmp_path: Path) -> None:
    a_run(tmp_path, boot_id="another")
    found = lost_run.find(str(tmp_path))
    assert found is not None
    assert found.rebooted


@pytest.mark.parametrize("code", [0, 1])
def test_a_run_that_ended_was_not_lost(tmp_path: Path, code: int) -> None:
    a_run(tmp_path, {"kind": "end", "exit_code": code})
    assert lost_run.find(str(tmp_path)) is None


def test_an_older_one_was_said_already(tmp_path: Path) -> None:
    a_run(tmp_path)
    a_run(tmp_path, {"kind": "end", "exit_code": 0})
    assert lost_run.find(str(tmp_path)) is None


def test_one_elsewhere_may_still_run(tmp_path: Path) -> None:
    a_run(tmp_path, boot_id="another", host="another")
    assert lost_run.find(str(tmp_path)) is None


def test_one_that_runs_is_not_lost(tmp_path: Path) -> None:
    with living_run(tmp_path):
        assert lost_run.find(str(tmp_path)) is None


def test_no_runs_yet(tmp_path: Path) -> None:
    assert lost_run.find(str(tmp_path / "runs")) is None
