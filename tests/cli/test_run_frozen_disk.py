"""The disk of the runs folder hangs: the ranks print, the verdict comes, the launcher ends."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.holdfast_command import wait_until
from tests.cli.jobs import job, script
from tests.frozen_disk import disk

TALK = """
import os, sys, time
folder, rank = sys.argv[1], os.environ["RANK"]
for number in range(10_000):
    print(f"rank {rank} line {number}", flush=True)
    time.sleep(0.05)
    if rank == "1" and os.path.exists(f"{folder}/raise"):
        raise ValueError("no data")
"""


@pytest.mark.long
@pytest.mark.lab
def test_a_run_outlives_the_disk_of_its_folder(tmp_path: Path) -> None:
    with disk(tmp_path) as frozen:
        runs = ("--runs", str(frozen.folder), "--max-restarts", "0", "--nproc-per-node", "2")
        with job(tmp_path / "job", *runs, script(tmp_path, TALK), str(tmp_path)) as started:
            wait_until(lambda: b"rank 1 line 3\n" in started.out, seconds=90)
            frozen.freeze()
            wait_until(lambda: "does not answer (file system hangs?)" in started.err, seconds=90)
            seen = started.out.count(b"rank 1")
            wait_until(lambda: started.out.count(b"rank 1") > seen + 20)
            (tmp_path / "raise").touch()
            assert started.finish() == 1, started.err
            assert "python-exception" in started.err
            assert "ValueError: no data" in started.err
            assert "not written to" in started.err
            assert "of logs" in started.err
