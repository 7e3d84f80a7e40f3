"""`holdfast drill` for real: a training of two ranks, broken on purpose."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from holdfast.drill import marked_processes
from tests.places import ROOT

TRAIN = ROOT / "examples" / "train.py"
STARTED = 120.0
"""seconds until ranks are seen, on a busy machine"""


def drill(folder: Path, *arguments: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "holdfast", "drill", "--unfenced", *arguments],
        cwd=folder, text=True, start_new_session=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """The folder of a user, with a checkpoint that a drill must not touch."""
    (tmp_path / "ckpts").mkdir()
    (tmp_path / "ckpts" / "mine.pt").write_text("precious")
    yield tmp_path
    marked_processes.end(tmp_path)


def test_every_promise_of_the_quick_drills_is_kept(home: Path) -> None:
    (home / "train.py").write_text(TRAIN.read_text())
    holding = drill(home, "--quick", "--json", "--nproc-per-node", "2", "train.py")
    answer, narration = holding.communicate()
    assert holding.returncode in (0, 1), narration
    report: dict[str, Any] = json.loads(answer)
    rows = {row["drill"]: row for row in report["drills"]}
    assert len(rows) == 5
    for row in rows.values():
        # On a busy machine a fault may be noticed late; nothing else may go wrong.
        assert {one["promise"] for one in row["broken"]} <= {"notice"}, row
        assert row["status"] in ("kept", "broken"), row
        assert row["named_right"], row
        assert row["weights"] == row["data"] == "identical", row
    assert rows["rank-killed"]["repeated"] > 0
    assert rows["external-sigterm"]["repeated"] == 0, "it saves when it is told to stop"
    assert (home / "ckpts" / "mine.pt").read_text() == "precious"
    assert [entry.name for entry in (home / "ckpts").iterdir()] == ["mine.pt"]
    assert marked_processes.find(home) == []


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_an_interrupted_drill_leaves_nothing(home: Path, number: int) -> None:
    (home / "endless.py").write_text("import time\nimport torch\ntime.sleep(600)\n")
    holding = drill(home, "--faults", "rank-killed", "--nproc-per-node", "1", "endless.py")
    until = time.monotonic() + STARTED
    while len(marked_processes.find(home)) < 2 and time.monotonic() < until:  # launcher, rank
        assert holding.poll() is None, holding.communicate()
        time.sleep(0.1)
    assert len(marked_processes.find(home)) >= 2, "there is something to leave behind"
    os.kill(holding.pid, number)
    holding.communicate()
    assert holding.returncode == (130 if number == signal.SIGINT else -9)
    until = time.monotonic() + 60  # the guardian needs a moment where the drill was killed
    while marked_processes.find(home) and time.monotonic() < until:
        time.sleep(0.1)
    assert marked_processes.find(home) == []
