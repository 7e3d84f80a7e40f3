"""Workers are told from other children of a rank."""

from __future__ import annotations

import signal
from pathlib import Path

import pytest

from holdfast.analysis.drill.host_acts import KillLoaderWorker
from holdfast.drill.acts.registry import carrier_of
from holdfast.drill.stage import CannotInjectHere
from tests.drill.acts.stand_in import SECONDS, a_stage, gate_program, started

FORKED = """
import os, subprocess, time
helper = subprocess.Popen(["sleep", "600"])
worker = os.fork()
if not worker:
    time.sleep(600)
"""
WAIT = """
_, status = os.waitpid(worker, 0)
alive = helper.poll() is None
helper.kill()
sys.exit(os.WTERMSIG(status) if alive else 1)
"""
ALONE = "import subprocess\nhelper = subprocess.Popen(['sleep', '600'])\n"


def test_a_forked_worker_is_killed_and_another_child_is_not(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), KillLoaderWorker()
    with started(stage, FORKED + gate_program(WAIT)) as rank:
        carrier_of(act).inject(act, stage)
        assert rank.wait(SECONDS) == signal.SIGKILL


def test_a_rank_without_workers_is_no_drill(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), KillLoaderWorker()
    with (
        started(stage, ALONE + gate_program("")),
        pytest.raises(CannotInjectHere, match="no DataLoader workers"),
    ):
        carrier_of(act).inject(act, stage)
