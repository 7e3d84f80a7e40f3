"""A file system of the job's own that gets full: nothing of it is seen by the machine."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from holdfast.analysis.drill.host_acts import FillDisk
from holdfast.drill.acts.registry import carrier_of
from holdfast.drill.stage import CannotInjectHere, wait_until
from tests.drill.acts.stand_in import SECONDS, a_stage, gate_program, started

pytestmark = pytest.mark.lab
SAVER = """
import os, sys, time
def save(name):
    with open(f"ckpts/{name}", "wb") as file:
        file.write(os.urandom(1 << 20))
save("first")
""" + gate_program("""
try:
    save("second")
except OSError as problem:
    open("errno", "w").write(str(problem.errno))
sys.stdin.readline()
save("third")
""")


def test_it_is_full_until_it_is_lifted(tmp_path: Path) -> None:
    stage, act = a_stage(tmp_path), FillDisk()
    carrier, outside = carrier_of(act), stage.checkpoints
    assert outside is not None
    try:
        carrier.prepare(act, stage)
    except CannotInjectHere as why:
        pytest.skip(f"needs a mount namespace: {why}")
    with started(stage, SAVER) as rank:
        carrier.inject(act, stage)
        noted = stage.folder.work / "errno"
        assert wait_until(lambda: noted.exists() and noted.read_text() != "", seconds=SECONDS)
        assert int(noted.read_text()) == errno.ENOSPC
        assert [path for path, size, _ in stage.folder.listing() if size == 1 << 20] == [
            "ckpts/first"
        ]
        assert os.listdir(outside) == []
        carrier.lift(act, stage)
        assert rank.stdin is not None
        rank.stdin.write("\n")
        rank.stdin.flush()
        assert rank.wait(SECONDS) == 0
        assert stage.checkpoints is not None
        assert {"first", "third"} <= set(os.listdir(stage.checkpoints))
    assert os.listdir(outside) == []


def test_a_job_without_checkpoints_has_no_disk_to_fill(tmp_path: Path) -> None:
    with pytest.raises(CannotInjectHere, match="saves no checkpoints"):
        carrier_of(FillDisk()).prepare(FillDisk(), a_stage(tmp_path, checkpoints=False))
