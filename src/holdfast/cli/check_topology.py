"""`holdfast check --topology`: the picture of this machine, in place of findings."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.errors import ConfigError, EnvironmentFailure

if TYPE_CHECKING:
    from holdfast.analysis.machine import Plan

NEEDS = (
    "pci",
    "gpu_direct",
    "nvidia",
    "rocm",
    "rdma_devices",
    "rdma_ports",
    "interfaces",
    "settings",
)


def refuse_other_work(arguments: argparse.Namespace) -> None:
    """It judges nothing, and it looks at this machine only."""
    given = [
        option
        for option in ("smoke", "only", "skip", "join", "hosts", "hostfile", "member")
        if getattr(arguments, option, None)
    ]
    if given:
        raise ConfigError(
            f"--topology draws this machine and checks nothing: it does not go with --{given[0]}",
            hint="run `holdfast check --topology` alone, on the machine you ask about",
        )


def run(arguments: argparse.Namespace, plan: Plan) -> int:
    from holdfast.analysis.machine import Unread
    from holdfast.analysis.machine.topology import topology
    from holdfast.check.collect import collect
    from holdfast.check.reader_list import readers
    from holdfast.view import document
    from holdfast.view import topology as picture

    facts = collect(plan, readers(NEEDS), seconds=arguments.deadline, say=streams.narrate)
    if isinstance(facts.pci, Unread):
        raise EnvironmentFailure(f"the PCI tree could not be read: {facts.pci.why}")
    seen = topology(facts, facts.pci)
    if arguments.json:
        streams.answer(document.plain("check", topology=seen), encoding=document.ENCODING)
    else:
        streams.answer(picture.draw(facts, seen, width=streams.width()))
    return 0
