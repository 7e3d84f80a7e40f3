"""Jobs for tests: a healthy machine with a GPU build, a command line, a script."""

from __future__ import annotations

import textwrap
from typing import Any

import msgspec

from holdfast import facts as f
from holdfast.judged import Clock
from holdfast.lint import shell
from holdfast.settings import clocks, script
from holdfast.settings.nouns import Job
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
    program = script.read(textwrap.dedent(text).lstrip("\n"), "train.py")
    return msgspec.structs.replace(
        job, script="train.py", asked=script.asked(program), frameworks=script.packages(program)
    )


def clock(job: Job, key: str) -> Clock:
    return next(one for one in clocks.clocks(job) if one.key == key)


def keys(job: Job) -> set[str]:
    return {one.key for one in clocks.clocks(job)}
