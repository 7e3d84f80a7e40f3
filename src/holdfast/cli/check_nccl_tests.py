"""`holdfast check --nccl-tests`: the lines that build and run nccl-tests here."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.analysis.machine import Plan

NEEDS = ("software", "nvidia")


def refuse_other_work(arguments: argparse.Namespace) -> None:
    """It only prints what to type."""
    given = [
        option
        for option in ("smoke", "topology", "only", "skip", "join", "hosts", "hostfile", "member")
        if getattr(arguments, option, None)
    ]
    if given:
        raise ConfigError(
            f"--nccl-tests prints lines to type and checks nothing: it does not go with "
            f"--{given[0]}",
            hint="holdfast check --nccl-tests",
        )


def run(arguments: argparse.Namespace, plan: Plan) -> int:
    from holdfast.analysis.machine import NvidiaFacts, Software
    from holdfast.check.collect import collect
    from holdfast.check.nccl_tests.recipe import NcclTestsJob, architectures, recipe
    from holdfast.check.nccl_tests.toolchain import find_toolchain
    from holdfast.check.reader_list import readers
    from holdfast.view import document

    facts = collect(plan, readers(NEEDS), seconds=arguments.deadline)
    libraries = facts.software.nccl if isinstance(facts.software, Software) else ()
    gpus = facts.nvidia.gpus if isinstance(facts.nvidia, NvidiaFacts) else ()
    sizes = [gpu.memory_total for gpu in gpus if gpu.memory_total]
    made = recipe(
        find_toolchain(plan.environment, [library.path for library in libraries]),
        NcclTestsJob(
            gpus=plan.nproc if plan.nproc_named or gpus else 0,
            nodes=plan.max_nodes,
            memory=min(sizes, default=None),
            architectures=architectures(gpus),
        ),
    )
    if arguments.json:
        told = {"remarks": made.remarks, "build": made.build, "run": made.run}
        streams.answer(document.plain("check", nccl_tests=told), encoding=document.ENCODING)
        return 0
    for remark in made.remarks:
        streams.narrate(remark)
    streams.answer("\n".join(["# build", *made.build, "# run, then judge", *made.run]))
    return 0
