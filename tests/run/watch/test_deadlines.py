"""`holdfast.deadline` under `holdfast run`: the launcher keeps it, names the rank, and ends it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from holdfast.rank import heartbeat_page
from holdfast.run.watch.rank_state import ObservedRank

SCRIPT = """
import os, time, holdfast
def forward():
    time.sleep(600)
if os.environ["RANK"] == "1":
    with holdfast.deadline("forward", 1.0):
        forward()
time.sleep(600)
"""


def test_the_launcher_keeps_a_limit(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text(SCRIPT)
    command = [sys.executable, "-m", "holdfast", "run", "--no-check", "--max-restarts=0"]
    with subprocess.Popen(
        [*command, "--nproc-per-node=2", str(script)], cwd=tmp_path,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    ) as launcher:  # fmt: skip
        try:
            _, err = launcher.communicate(timeout=100)
        finally:
            launcher.kill()
    assert launcher.returncode == 134, err
    journal = next(tmp_path.glob("runs/*/journal.jsonl")).read_text().splitlines()
    told = [
        record for line in journal if (record := json.loads(line))["kind"] in ("notice", "verdict")
    ]
    assert [(r["kind"], r["slug"], r["ranks"]) for r in told] == [
        ("notice", "limit-exceeded", [1]),
        ("verdict", "limit-exceeded", [1]),
    ]
    assert 'exceeded the deadline of "forward" by' in told[0]["reason"]
    assert "in forward() at train.py:4" in told[0]["reason"]
    assert "SIGABRT to rank 1" in err


def test_a_machine_that_slept_gives_a_limit_its_time_back() -> None:
    _, buffer = heartbeat_page.create()
    page = heartbeat_page.HeartbeatPage(buffer)
    page.announce(1)
    rank = ObservedRank(
        rank=0, local_rank=0, pid=1, host="a", page=buffer, words_file="", stderr_file="",
        stderr_tail=bytes, socket="", started_at=0.0,
    )  # fmt: skip

    def limit_heard() -> float:
        rank.read_page(1.0)
        assert rank.beat
        return rank.beat.limit_until

    page.limit("forward", 100.0)
    assert limit_heard() == 100.0
    rank.reset_timers(60.0, late=20.0)
    assert limit_heard() == 120.0
    rank.reset_timers(90.0, late=5.0)
    assert limit_heard() == 125.0
    page.limit("backward", 150.0)
    assert limit_heard() == 150.0, "a section that began later gets nothing"
    page.limit("", 0.0)
    rank.reset_timers(95.0, late=5.0)
    assert limit_heard() == 0.0
