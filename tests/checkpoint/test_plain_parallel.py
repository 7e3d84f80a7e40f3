"""Real ranks with plain modules of each rank's own, under `holdfast run`."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.places import TARGETS
from tests.run.launching import surroundings

# ranks are started once for all of them, so one worker
pytestmark = pytest.mark.xdist_group("plain-parallel")


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> tuple[int, str, Path]:
    folder = tmp_path_factory.mktemp("parallel")
    done = subprocess.run(
        [sys.executable, "-m", "holdfast", "run", "--no-check", "--max-restarts", "3",
         "--runs", str(folder / "runs"), "--nproc-per-node", "2",
         str(TARGETS / "plain_parallel.py"), str(folder / "saved")],
        capture_output=True, text=True, timeout=120, check=False, env=surroundings(),
    )  # fmt: skip
    return done.returncode, done.stdout + done.stderr, folder


def test_each_rank_resumes_its_own_bit_for_bit(finished: tuple[int, str, Path]) -> None:
    _, output, _ = finished
    lines = [line[line.index("{") :] for line in output.splitlines() if '"equal"' in line]
    found = {(one["what"], one["rank"]): one["equal"] for one in map(json.loads, lines)}
    kinds = ("Training", "Stages", "SplitOptimizer", "SplitMomentum", "Replicas")
    assert found == {(kind, rank): True for kind in kinds for rank in (0, 1)}, output


def test_experts_saved_as_replicas_are_refused_and_not_restarted(
    finished: tuple[int, str, Path],
) -> None:
    code, output, folder = finished
    assert code not in (0, 2), output
    assert "rank 1 has other values than rank 0, and only rank 0's would be saved" in output
    assert "ranks-differ" in output
    assert output.count('"Replicas"') == 2, "one attempt"
    assert not list((folder / "saved" / "experts").glob("step-*"))
