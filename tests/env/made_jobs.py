"""Jobs for tests: a healthy machine with a GPU build, a command line, a script."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec

from holdfast.analysis import machine as f
from holdfast.analysis.variables.status import Timeout
from holdfast.env import script_timeouts, timeouts_in_force
from holdfast.env.job import Job
from holdfast.lint.readers import shell
from tests.faults.machines import a_machine, a_plan, settings

CPU_BUILD = {"torch_cuda": "", "nccl": ()}


def a_job(
    command: str = "",
    text: str = "",
    *,
    machine: f.MachineFacts | None = None,
    software: dict[str, Any] | None = None,
    nodes: int = 1,
    **variables: str,
) -> Job:
    """`variables` are in the environment; `text` is the script that the command starts."""
    machine = machine or a_machine(a_plan(max_nodes=nodes))
    known = machine.software
    assert isinstance(known, f.Software)
    machine = msgspec.structs.replace(
        machine,
        settings=settings(**variables) or machine.settings,
        software=msgspec.structs.replace(known, **(software or {})),
    )
    job = Job(facts=machine, launches=shell.read(command, "command line").launches)
    if not text:
        return job
    program = script_timeouts.read(textwrap.dedent(text).lstrip("\n"), "train.py")
    return msgspec.structs.replace(
        job,
        script="train.py",
        asked=script_timeouts.asked(program),
        frameworks=script_timeouts.packages(program),
    )


def timeout(job: Job, key: str) -> Timeout:
    return next(one for one in timeouts_in_force.timeouts(job) if one.key == key)


def keys(job: Job) -> set[str]:
    return {one.key for one in timeouts_in_force.timeouts(job)}
