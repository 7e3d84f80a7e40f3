"""A stage on lab hosts with a process on each that stands for its launcher; no torch."""

from __future__ import annotations

import threading
from pathlib import Path

from holdfast.analysis.drill.rehearsal import JobShape, Rehearsal
from holdfast.drill.lab import Host, Lab
from holdfast.drill.layout import JobFolder
from holdfast.drill.stage import LauncherProcess, Stage


def a_rehearsal(hosts: tuple[str, ...] = ("alpha", "bravo"), *, at_step: int = 3) -> Rehearsal:
    job = JobShape(ranks=len(hosts), steps=10, hosts=hosts)
    return Rehearsal(name="made", rank=0, at_step=at_step, job=job)


def a_stage(lab: Lab, hosts: list[Host], folder: Path, *, at_step: int = 3) -> Stage:
    """Starts a launcher wherever the stage is asked to."""
    stage = Stage(
        a_rehearsal(tuple(host.name for host in hosts), at_step=at_step),
        JobFolder(folder / "job").make(),
        checkpoints=None,
        lab=lab,
        hosts={host.name: host for host in hosts},
    )

    def start(name: str) -> None:
        process = lab.start(stage.hosts[name], ["sleep", "1000"])
        stage.launchers[name] = LauncherProcess(name, process, threading.Thread())

    stage.start_launcher = start
    return stage
