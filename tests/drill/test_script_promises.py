"""Trainings without holdfast's library, drilled for real: each breaks the promise it is made to
break, and is told what to change; the careful one breaks none."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from holdfast.analysis.drill import saves
from holdfast.analysis.drill.outcome import DrillReport, DrillRow
from holdfast.analysis.drill.reference import reference as made
from holdfast.drill import marked_processes, undisturbed
from holdfast.drill.scripted import plan, rehearse
from tests.places import TARGETS


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for script in (TARGETS / "drills").glob("*.py"):
        shutil.copy(script, tmp_path)
    monkeypatch.chdir(tmp_path)
    return tmp_path


def drilled(script: str, *faults: str, ranks: int = 2) -> DrillReport:
    command = ["--unfenced", script]  # where this kernel has no fence
    report = rehearse([plan(fault) for fault in faults], command, ranks=ranks)
    assert marked_processes.find(Path(report.folder)) == []
    return report


def broken(row: DrillRow) -> dict[str, str]:
    """By promise, the slug. How soon it was noticed depends on who else uses this machine."""
    return {one.promise: one.slug for one in row.broken if one.promise != "notice"}


# One rank: what the launcher does is tested elsewhere, and CI has two cores.
@pytest.mark.parametrize(
    ("script", "fault", "promises", "to_change"),
    [
        ("no_resume.py", "rank-killed", {"repeat": "restart-from-zero"},
         "load the newest checkpoint at every start"),
        ("not_atomic.py", "checkpoint-incomplete", {"recover": "checkpoint-not-atomic"},
         "write to a temporary name and os.replace it"),
    ],
)  # fmt: skip
def test_a_script_that_loses_its_work_is_told_why(
    home: Path, script: str, fault: str, promises: dict[str, str], to_change: str
) -> None:
    (row,) = drilled(script, fault, ranks=1).rows
    assert broken(row) == promises, row.broken
    assert to_change in " ".join(one.fix for one in row.broken)


@pytest.mark.long
@pytest.mark.parametrize(
    ("script", "promises", "to_change"),
    [
        ("no_rng.py", {"loss": "checkpoint-lacks-state", "weights": "checkpoint-lacks-state"},
         "RNG state of every rank"),
        ("no_optimizer.py", {"loss": "checkpoint-lacks-state", "weights": "checkpoint-lacks-state"},
         "the optimizer or the learning rate's scheduler"),
        ("no_sampler.py", {"data": "data-position-lost", "loss": "", "weights": ""},
         "restore the position of the sampler"),
    ],
)  # fmt: skip
def test_a_script_that_restores_too_little_is_told_what(
    home: Path, script: str, promises: dict[str, str], to_change: str
) -> None:
    (row,) = drilled(script, "rank-killed").rows
    assert broken(row) == promises, row.broken
    assert to_change in " ".join(one.fix for one in row.broken)


@pytest.mark.long
def test_not_atomic_passes_what_it_is_not_made_for(home: Path) -> None:
    (row,) = drilled("not_atomic.py", "rank-killed").rows
    assert broken(row) == {}


@pytest.mark.long
def test_a_damaged_checkpoint_that_is_loaded_is_told_from_what_every_resume_lacks(
    home: Path,
) -> None:
    report = drilled("believes.py", "rank-killed", "checkpoint-corrupt",
                     "checkpoint-corrupt/truncated")  # fmt: skip
    killed, flipped, cut = report.rows
    lost = {"data": "data-position-lost", "loss": "", "weights": ""}
    assert broken(killed) == lost, killed
    assert broken(flipped) == {"load": "checkpoint-corrupt", **lost}, flipped
    assert flipped.broken[0].promise == "load"
    assert (flipped.named, flipped.named_right) == ("", False)
    assert broken(cut) == {"recover": "checkpoint-corrupt"}, cut
    assert cut.noticed is not None, "the job ended because of it, which was said"
    reference = undisturbed.earlier(report.folder, report.command).observed
    assert saves.steps_saved(reference, made(reference.attempts)) == (10, 20, 30, 40, 50, 60)


@pytest.mark.long
def test_a_careful_script_keeps_every_promise(home: Path) -> None:
    faults = ("rank-killed", "python-exception", "rank-stuck", "rank-frozen", "external-sigterm",
              "launcher-killed", "disk-full", "checkpoint-corrupt", "checkpoint-corrupt/truncated",
              "checkpoint-incomplete")  # fmt: skip
    report = drilled("careful.py", *faults)
    assert {row.drill: broken(row) for row in report.rows if row.status != "skipped"} == {
        fault: {} for fault in faults
    }
    assert all(row.weights == "identical" for row in report.rows)
