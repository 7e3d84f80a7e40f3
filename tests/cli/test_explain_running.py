"""`holdfast explain --pid` on a job that holdfast did not start."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.holdfast_command import run, wait_until
from tests.places import TARGETS


@pytest.mark.long
def test_the_busy_rank_of_a_job_by_spawn_is_named(tmp_path: Path) -> None:
    script = [sys.executable, str(TARGETS / "spawned_backward.py")]
    words = [str(tmp_path / "meeting"), str(tmp_path / "told")]
    clean = {k: v for k, v in os.environ.items() if not k.startswith(("RANK", "SLURM", "OMPI"))}
    job = subprocess.Popen([*script, *words], env=clean, start_new_session=True)
    try:
        wait_until(lambda: len(list(tmp_path.glob("told.*"))) == 3, seconds=100)
        done = run("explain", "--pid", str(job.pid), "--json")
        first = json.loads(done.stdout)["diagnoses"][0]
        assert (first["slug"], first["culprit"]["rank"]) == ("rank-stuck", 1)
        assert first["victims"] == [0, 2]
        assert "read_slowly() at spawned_backward.py" in first["reason"]
        assert "numbered in the order" in done.stderr
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
