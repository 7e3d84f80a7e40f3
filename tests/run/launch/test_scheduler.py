"""Whose job it is, from what batch systems set; and a real signal in a real job."""

from __future__ import annotations

import signal
import threading
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.scene.cpu import Scheduler
from holdfast.run.launch import scheduler
from tests.cli.holdfast_command import wait_until
from tests.cli.jobs import job, script

WAIT = "import time\nprint('here', flush=True)\ntime.sleep(600)\n"
NOW = 1_700_000_000.0
SOON = time.strftime("%Y-%m-%dT%H:%M:%S", time.localtime(NOW + 100))


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, None),
        ({"SLURM_JOB_ID": ""}, None),
        ({"SLURM_JOB_END_TIME": "1700000100"}, None),
        ({"SLURM_JOB_ID": "7"}, Scheduler(name="Slurm", job="7")),
        (
            {"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "1700000100"},
            Scheduler(name="Slurm", job="7", left=100.0),
        ),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "0"}, Scheduler(name="Slurm", job="7")),
        ({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": "none"}, Scheduler(name="Slurm", job="7")),
        # an end that is not this scheduler's own
        ({"LSB_JOBID": "8", "SLURM_JOB_END_TIME": "9"}, Scheduler(name="LSF", job="8")),
        ({"PBS_JOBID": "9.host"}, Scheduler(name="PBS", job="9.host")),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "HOSTNAME": "train-0"},
            Scheduler(name="Kubernetes", job="train-0"),
        ),
        (
            {"KUBERNETES_SERVICE_HOST": "10.0.0.1", "SLURM_JOB_ID": "7"},
            Scheduler(name="Slurm", job="7"),
        ),
    ],
)
def test_what_the_environment_tells(environment: dict[str, str], found: Scheduler | None) -> None:
    assert scheduler.read(environment, wall=NOW) == found


@given(st.text())
def test_any_end_is_read_or_unknown(end: str) -> None:
    found = scheduler.read({"SLURM_JOB_ID": "7", "SLURM_JOB_END_TIME": end}, wall=NOW)
    assert found is not None
    assert found.left is None or found.left > -NOW


def test_a_job_that_slurm_takes_back_long_before_its_end(tmp_path: Path) -> None:
    end = int(time.time()) + 5 * 3600
    settings = ("SLURM_JOB_ID=123", f"SLURM_JOB_END_TIME={end}")
    with job(tmp_path, *settings, script(tmp_path, WAIT)) as running:
        wait_until(lambda: running.out.count(b"here\n") == 1, seconds=60)
        running.process.send_signal(signal.SIGTERM)
        assert running.finish() == 128 + signal.SIGTERM, running.err
        assert running.said() == [("verdict", "preempted", [])]
        assert "took the machine from job 123 before its time limit (4 hours left)" in running.err
        assert running.records("end")[0]["exit_code"] == 128 + signal.SIGTERM


@pytest.mark.parametrize(
    ("printed", "left"),
    [(SOON, 100.0), ("NOLIMIT", None), ("N/A", None), ("", None)],
)
def test_squeue_is_asked_where_the_environment_has_no_end(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, printed: str, left: float | None
) -> None:
    """Its form is that of 22.05; tests/run/nodes/test_slurm.py asks a real one."""
    squeue = tmp_path / "squeue"
    squeue.write_text(f"#!/bin/sh\n[ $2 = --jobs=71 ] && echo {printed}\n: > {tmp_path}/asked\n")
    squeue.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(scheduler, "_asked", {})
    scheduler.ask_for_end({"SLURM_JOB_ID": "71", "SLURM_NODEID": "1"})
    scheduler.ask_for_end({"SLURM_JOB_ID": "71", "SLURM_JOB_END_TIME": "9"})
    assert not [one for one in threading.enumerate() if one.name == "squeue"]
    scheduler.ask_for_end({"SLURM_JOB_ID": "71"})
    wait_until(lambda: not [one for one in threading.enumerate() if one.name == "squeue"])
    assert (tmp_path / "asked").exists()
    assert scheduler.read({"SLURM_JOB_ID": "71"}, wall=NOW) == Scheduler(
        name="Slurm", job="71", left=left
    )
