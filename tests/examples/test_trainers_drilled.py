"""The examples of trainers under `holdfast drill --quick`: every promise is kept."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from holdfast.analysis.drill.outcome import DrillReport
from holdfast.drill.scripted import plan, rehearse
from tests.places import ROOT, TARGETS

QUICK = ("rank-killed", "rank-stuck", "rank-frozen", "external-sigterm")


def drilled(folder: Path, script: Path, *faults: str) -> DrillReport:
    shutil.copy(script, folder)
    return rehearse(
        [plan(fault) for fault in faults], ["--unfenced", script.name], ranks=2, patience=4
    )


def needs_transformers(script: str) -> None:
    if script.startswith("hf_") and find_spec("transformers") is None:
        pytest.skip("needs transformers, which needs Python 3.11")


@pytest.mark.long
@pytest.mark.parametrize("script", ["hf_trainer.py", "lightning_trainer.py", "accelerate_loop.py"])
def test_with_holdfast_every_promise_is_kept(
    script: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_transformers(script)
    monkeypatch.chdir(tmp_path)
    report = drilled(tmp_path, ROOT / "examples" / script, *QUICK)
    # How soon it is noticed depends on who else uses this machine.
    broken = {row.drill: [one for one in row.broken if one.promise != "notice"]
              for row in report.rows}  # fmt: skip
    assert broken == {fault: [] for fault in QUICK}
    killed = next(row for row in report.rows if row.drill == "rank-killed")
    assert (killed.data, killed.loss, killed.weights) == ("identical", "identical", "identical")


@pytest.mark.long
def test_the_trainers_own_checkpoints_are_resumed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    needs_transformers("hf_own.py")
    monkeypatch.chdir(tmp_path)
    (row,) = drilled(tmp_path, TARGETS / "drills" / "hf_own.py", "rank-killed").rows
    assert [one for one in row.broken if one.promise != "notice"] == []
