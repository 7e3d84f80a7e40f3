"""Drills from a script: what can be asked for, and what is refused before anything is started."""

from __future__ import annotations

import inspect
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from holdfast import drill
from holdfast.drill import conduct
from holdfast.drill.asked import AskedDrill
from holdfast.errors import ConfigError


def test_a_plan_is_what_was_asked_for() -> None:
    plan = drill.plan(fault="rank-killed", rank=2, at_step=20)
    assert (plan.fault, plan.rank, plan.at_step) == ("rank-killed", 2, 20)
    open_one = drill.plan("rank-stuck/busy")
    assert (open_one.rank, open_one.at_step) == (None, None)


@pytest.mark.parametrize(
    ("make", "sentence", "hint"),
    [
        (lambda: drill.plan("rank-kiled"), "'rank-kiled'", "rank-killed"),
        (lambda: drill.plan("rank-stuck*"), "one drill, got 'rank-stuck*'", "rank-stuck/busy"),
        (lambda: drill.plan("rank-killed", rank=-1), "rank must be >= 0, got -1", ""),
        (lambda: drill.plan("rank-killed", at_step=-2), "at_step must be >= 0, got -2", ""),
        (lambda: drill.plan("rank-killed", at_step=True), "at_step must be a whole number", ""),
        (lambda: drill.plan("rank-killed", rank=1.5), "rank must be a whole number", ""),  # type: ignore[arg-type]
        (lambda: drill.rehearse([], ["train.py"]), "plans is empty", "drill.plan"),
        (lambda: drill.rehearse([drill.plan("rank-killed")], ["t.py"], ranks=0), "ranks", ""),
        (lambda: drill.rehearse([drill.plan("rank-killed")], []), "needs the script", ""),
        (lambda: drill.rehearse([drill.plan("rank-killed")], ["t.py"], patience=0), "0", ""),
        (lambda: drill.rehearse([drill.plan("rank-killed")], ["t.py"], hosts=9), "9", ""),
    ],
)
def test_what_makes_no_sense_is_refused_before_anything_is_started(
    make: Callable[[], object],
    sentence: str,
    hint: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError) as refused:
        make()
    assert sentence in refused.value.sentence
    assert hint in refused.value.hint
    assert list(tmp_path.iterdir()) == []


def test_the_job_is_asked_for_as_on_the_command_line(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[tuple[AskedDrill, list[str]]] = []

    class Recorder:
        def __init__(self, asked: AskedDrill, _audience: object, *, plans: list[drill.DrillPlan]):
            seen.append((asked, [plan.fault for plan in plans]))

        def hold(self) -> str:
            return "report"

    monkeypatch.setattr(conduct, "Conductor", Recorder)
    plans = [drill.plan("rank-killed"), drill.plan("rank-frozen")]
    command = ["--max-restarts", "1", "train.py", "--hosts", "3"]
    report: object = drill.rehearse(
        plans, command, ranks=4, runner="torchrun", reference="drills/1"
    )
    assert report == "report"
    asked, faults = seen[0]
    assert faults == ["rank-killed", "rank-frozen"]
    assert asked.script == ("train.py", "--hosts", "3")
    assert asked.options == ("--nproc-per-node", "4", "--max-restarts", "1")
    assert (asked.hosts, asked.runner, asked.patience) == (1, "torchrun", 8.0)
    assert asked.reference == "drills/1"


@pytest.mark.parametrize("function", [drill.plan, drill.rehearse])
def test_every_argument_is_documented(function: Callable[..., object]) -> None:
    text = inspect.getdoc(function) or ""
    for argument in inspect.signature(function).parameters:
        assert f"{argument}: " in text


def test_a_plan_needs_no_torch() -> None:
    program = "import sys; from holdfast import drill; drill.plan('rank-killed')\n"
    program += "assert 'torch' not in sys.modules"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
