"""A drill on lab hosts that is interrupted or killed leaves nothing; a real one on two hosts."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.drill import marked_processes
from holdfast.drill.stage import wait_until
from tests.drill.lab.fixture import lab_or_skip
from tests.drill.lab.test_clean_up import namespaces_of, wait_until_gone
from tests.places import ROOT

pytestmark = [pytest.mark.lab, pytest.mark.xdist_group("lab")]

HOLDS_A_JOB = """
import os, sys
from pathlib import Path
from holdfast.drill import guardian, marked_processes, on_hosts
from holdfast.drill.job import DrillJob
from holdfast.drill.launching import JobCommand
from tests.drill.test_on_hosts import HOSTS, Shell, a_stage

folder = Path(sys.argv[1])
stage = a_stage(folder)
with guardian.watching(folder), on_hosts.lab_hosts(HOSTS) as (stage.lab, stage.hosts):
    stage.environment = {"PATH": os.environ["PATH"],
                         marked_processes.MARK: str(stage.folder.witness)}
    for host in stage.hosts.values():
        for kind in ("net", "mnt", "pid", "uts", "ipc"):
            print(f"/proc/{host.pid}/ns/{kind}", end=" ")
    print(flush=True)
    input()
    asleep = Shell("setsid sleep 1000 & trap '' TERM INT HUP; touch here-$(uname -n); sleep 1000")
    DrillJob(stage, JobCommand(asleep, (), (), 1.0), None, longest=60.0, tell=str).run()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGKILL])
def test_whatever_ends_a_drill_ends_its_hosts(tmp_path: Path, number: int) -> None:
    with lab_or_skip():
        pass
    holding = subprocess.Popen(
        [sys.executable, "-c", HOLDS_A_JOB, str(tmp_path)], cwd=ROOT, text=True,
        stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        with namespaces_of(holding) as namespaces:
            assert len(namespaces) == 10
            work = tmp_path / "job" / "work"
            assert wait_until(lambda: len(list(work.glob("here-*"))) == 2, seconds=60)
            holding.send_signal(number)
            holding.wait(60)
            wait_until_gone(namespaces)
    finally:
        holding.kill()
        holding.communicate()
    assert wait_until(lambda: not marked_processes.find(tmp_path), seconds=30)


@pytest.mark.long
def test_a_training_on_two_hosts_survives_what_happens_between_them(tmp_path: Path) -> None:
    with lab_or_skip():
        pass
    (tmp_path / "train.py").write_text((ROOT / "examples" / "train.py").read_text())
    wanted = ["node-lost/replaced", "store-host-lost", "network-partition", "dns-failure"]
    held = subprocess.run(
        [sys.executable, "-m", "holdfast", "drill", "--unfenced", "--hosts", "2",
         "--nproc-per-node", "1", "--faults", ",".join(wanted), "--json", "train.py"],
        cwd=tmp_path, text=True, capture_output=True, timeout=1200, check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    assert held.returncode in (0, 1), held.stderr
    rows = {row["drill"]: row for row in json.loads(held.stdout)["drills"]}
    assert rows.keys() == set(wanted)
    for row in rows.values():
        # On a busy machine a fault may be noticed late; nothing else may go wrong.
        assert {one["promise"] for one in row["broken"]} <= {"notice"}, row
        assert row["status"] in ("kept", "broken"), row
        assert row["weights"] == row["data"] == "identical", row
    assert marked_processes.find(tmp_path) == []
