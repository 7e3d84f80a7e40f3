"""Whose job this is: what a batch system leaves in the environment of what it starts."""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.analysis.scene.cpu import Scheduler

MARKS = (("Slurm", "SLURM_JOB_ID"), ("LSF", "LSB_JOBID"), ("PBS", "PBS_JOBID"))
POD = "KUBERNETES_SERVICE_HOST"
"""set in every container of a pod, whose name is its host name"""
END = "SLURM_JOB_END_TIME"
"""wall seconds, since Slurm 22.05. It is as old as the job: a limit that was changed since
(`scontrol update`) is not in it. Neither LSF nor PBS reports one; a pod rarely has an end."""


def read(environment: Mapping[str, str], *, wall: float) -> Scheduler | None:
    """The innermost that shows: a batch job may run inside a pod, hardly a pod in a batch job."""
    for name, mark in MARKS:
        if job := environment.get(mark):
            end = environment.get(END, "") if name == "Slurm" else ""
            known = end.isdecimal() and len(end) < 12 and int(end)
            left = int(end) - wall if known else None
            return Scheduler(name=name, job=job, left=left)
    if environment.get(POD):
        return Scheduler(name="Kubernetes", job=environment.get("HOSTNAME", ""))
    return None
