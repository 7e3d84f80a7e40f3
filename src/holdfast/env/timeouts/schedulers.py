"""Timeouts of what started the launcher: the scheduler, `timeout`."""

from __future__ import annotations

import re
from collections.abc import Iterator

from holdfast.analysis.source.collectives.group_timeouts import slurm_seconds
from holdfast.analysis.variables.status import Timeout
from holdfast.env.job import Job
from holdfast.text import exact_duration

SBATCH = "https://slurm.schedmd.com/sbatch.html (--time, SLURM_JOB_END_TIME)"


UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0, "": 1.0}


def timeouts(job: Job) -> Iterator[Timeout]:
    yield from _allocation(job)
    for launch in job.launches:
        flag = launch.flag("time") if launch.kind in ("srun", "sbatch") else None
        if flag is not None:
            yield Timeout(
                name=f"{launch.kind} --time",
                key="scheduler-asked",
                stage="outside",
                seconds=slurm_seconds(flag.value) if flag.known else None,
                origin=f"--time {flag.value}",
                does="Slurm sends SIGTERM to all processes, then SIGKILL after its KillWait",
                source=SBATCH,
            )
    if job.time_limit is not None:
        yield Timeout(
            name="the command `timeout`",
            key="timeout-command",
            stage="outside",
            seconds=job.time_limit,
            origin="in front of the launcher",
            does="sends SIGTERM to the launcher",
            source="GNU coreutils, timeout(1)",
        )


def _allocation(job: Job) -> Iterator[Timeout]:
    """Of the job we are in; a limit that was changed since is not in it."""
    end, start = job.setting("SLURM_JOB_END_TIME"), job.setting("SLURM_JOB_START_TIME")
    if end is None or not end.value.isdecimal():
        return
    begun = int(start.value) if start and start.value.isdecimal() else None
    whole = int(end.value) - begun if begun is not None else None
    left = int(end.value) - job.wall
    yield Timeout(
        name="Slurm's time limit",
        key="scheduler",
        stage="outside",
        seconds=float(whole) if whole is not None and whole > 0 else max(left, 0.0),
        origin=f"SLURM_JOB_END_TIME={end.value}",
        does="Slurm sends SIGTERM to all processes, then SIGKILL after its KillWait",
        source=SBATCH,
        remark=f"{exact_duration(float(round(left)))} are left" if left > 0 else "it is over",
    )


def seconds_of_timeout(text: str) -> float | None:
    """The duration that coreutils' `timeout` takes: a number, with s, m, h or d; 0 is no limit."""
    match = re.fullmatch(r"(\d{1,9}(?:\.\d*)?)([smhd]?)", text)
    return float(match[1]) * UNITS[match[2]] or None if match else None
