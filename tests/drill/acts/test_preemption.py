"""A scheduler that takes a machine: every process of the job gets the signal, then the last one."""

from __future__ import annotations

import contextlib
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from holdfast.analysis.drill.injection import Preempt
from holdfast.analysis.drill.rehearsal import JobShape, Rehearsal
from holdfast.drill.acts.preemption import PreemptCarrier
from holdfast.drill.layout import JobFolder
from holdfast.drill.stage import LauncherProcess, Stage, wait_until

LAUNCHER = """
import signal, subprocess, sys
signal.signal(signal.SIGTERM, signal.SIG_IGN if sys.argv[1] == "deaf" else signal.SIG_DFL)
rank = subprocess.Popen([sys.executable, "-c", "import signal; print('up', flush=True);"
                         "signal.pause()"], stdout=subprocess.PIPE, text=True)
rank.stdout.readline()
print(rank.pid, flush=True)
signal.pause()
"""


@contextlib.contextmanager
def launcher(folder: Path, manner: str) -> Iterator[tuple[Stage, int]]:
    """A stage with a launcher on it, and the pid of its only rank."""
    process = subprocess.Popen(
        [sys.executable, "-c", LAUNCHER, manner], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout
        rank = int(process.stdout.readline())
        rehearsal = Rehearsal(name="preempted", rank=0, at_step=3, job=JobShape(ranks=1, steps=9))
        stage = Stage(rehearsal, JobFolder(folder).make(), checkpoints=None)
        stage.launchers[""] = LauncherProcess("", process, threading.Thread())
        yield stage, rank
    finally:
        process.kill()
        process.communicate()


def is_gone(pid: int) -> bool:
    return not psutil.pid_exists(pid) or psutil.Process(pid).status() == psutil.STATUS_ZOMBIE


def test_the_job_sees_an_end_that_the_scheduler_had_promised(tmp_path: Path) -> None:
    with launcher(tmp_path / "1", "polite") as (stage, _):
        PreemptCarrier().prepare(Preempt(grace=1, left=600), stage)
        assert stage.environment["SLURM_JOB_ID"]
        left = int(stage.environment["SLURM_JOB_END_TIME"]) - time.time()
        assert 0 < left <= 600
        assert stage.folder.order(0).exists()


def test_every_process_of_the_job_is_told(tmp_path: Path) -> None:
    with launcher(tmp_path / "1", "polite") as (stage, rank):
        PreemptCarrier().inject(Preempt(grace=60), stage)
        assert stage.launchers[""].process.wait(30) == -signal.SIGTERM
        assert wait_until(lambda: is_gone(rank), seconds=30)
        assert stage.folder.go(0).exists()


def test_one_that_does_not_end_is_killed_when_the_grace_is_over(tmp_path: Path) -> None:
    with launcher(tmp_path / "1", "deaf") as (stage, rank):
        PreemptCarrier().inject(Preempt(grace=0.2), stage)
        assert stage.launchers[""].process.wait(30) == -signal.SIGKILL
        assert wait_until(lambda: is_gone(rank), seconds=30)
