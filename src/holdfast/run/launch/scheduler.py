"""Whose job this is: what a batch system leaves in the environment of what it starts."""

from __future__ import annotations

import contextlib
import subprocess
import threading
import time
from collections.abc import Mapping

from holdfast.analysis.scene.cpu import Scheduler

MARKS = (("Slurm", "SLURM_JOB_ID"), ("LSF", "LSB_JOBID"), ("PBS", "PBS_JOBID"))
POD = "KUBERNETES_SERVICE_HOST"
"""set in every container of a pod, whose name is its host name"""
END = "SLURM_JOB_END_TIME"
"""wall seconds, in newer versions (22.05.8 does not set it yet). It is as old as the job: a limit
that was changed since (`scontrol update`) is not in it. Neither LSF nor PBS reports one; a pod
rarely has an end."""
ANSWER_SECONDS = 30.0
_asked: dict[str, float] = {}
"""job -> its end, as squeue told"""


def ask_for_end(environment: Mapping[str, str]) -> None:
    """Where Slurm does not say when the job is going to end, ask it, once and in the background:
    when it is over there is no time for questions. Of several nodes the first does."""
    job = environment.get("SLURM_JOB_ID", "")
    if not job or END in environment or environment.get("SLURM_NODEID", "0") != "0":
        return
    threading.Thread(target=_ask_squeue, args=(job,), name="squeue", daemon=True).start()


def _ask_squeue(job: str) -> None:
    command = ["squeue", "--noheader", f"--jobs={job}", "--format=%e"]
    with contextlib.suppress(OSError, subprocess.SubprocessError, ValueError, OverflowError):
        done = subprocess.run(
            command, capture_output=True, text=True, timeout=ANSWER_SECONDS, check=False,
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
        # 'NOLIMIT' and 'N/A' are no times
        _asked[job] = time.mktime(time.strptime(done.stdout.strip(), "%Y-%m-%dT%H:%M:%S"))


def read(environment: Mapping[str, str], *, wall: float) -> Scheduler | None:
    """The innermost that shows: a batch job may run inside a pod, hardly a pod in a batch job."""
    for name, mark in MARKS:
        if job := environment.get(mark):
            end = environment.get(END, "") if name == "Slurm" else ""
            known = end.isdecimal() and len(end) < 12 and int(end)
            left = int(end) - wall if known else None
            if name == "Slurm" and not known and job in _asked:
                left = _asked[job] - wall
            return Scheduler(name=name, job=job, left=left)
    if environment.get(POD):
        return Scheduler(name="Kubernetes", job=environment.get("HOSTNAME", ""))
    return None
