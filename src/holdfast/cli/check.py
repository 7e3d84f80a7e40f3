"""`holdfast check`: what on this machine, or between nodes, will break a training job."""

from __future__ import annotations

import argparse
import os
import sys
import time
from typing import TYPE_CHECKING

from holdfast.cli import check_nccl_tests, check_nodes, check_topology, streams
from holdfast.cli.choices import FAIL_ON, add_deadline, names

if TYPE_CHECKING:
    from holdfast.analysis.machine import MachineFacts, Plan
    from holdfast.findings import Finding

SUMMARY = "look at this machine, or at all nodes: what will break a training job, and the fix"
BANNER_NEEDS = ("software",)
SMOKE_NEEDS = ("loopback", "accelerators", "nvidia", "settings")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    job = parser.add_argument_group("the job you mean to start")
    job.add_argument("--port", type=int, help="the master port (default: MASTER_PORT, else 29500)")
    job.add_argument("--nproc-per-node", type=int, metavar="N", help="ranks on this machine")
    job.add_argument("--nnodes", metavar="N", help="machines of the job, or MIN:MAX")
    job.add_argument("--master-addr", metavar="HOST", help="address of the first machine")
    job.add_argument(
        "--ckpt", action="append", default=[], metavar="DIR", help="checkpoint folder (repeatable)"
    )
    job.add_argument(
        "--launcher-pid", type=int, metavar="PID", help="also judge the limits of this process"
    )
    check_nodes.add_arguments(parser)
    look = parser.add_argument_group("what to look at")
    look.add_argument(
        "--only", action="append", default=[], metavar="FAULT", help="code, slug or family digit"
    )
    look.add_argument(
        "--skip", action="append", default=[], metavar="FAULT", help="leave these out"
    )
    look.add_argument(
        "--smoke", action="store_true", help="start a few ranks and let them sum (needs torch)"
    )
    look.add_argument(
        "--nccl-tests",
        action="store_true",
        help="print how to build and run NVIDIA's nccl-tests here instead",
    )
    look.add_argument(
        "--topology", action="store_true", help="draw GPUs, cards and the ways between them instead"
    )
    add_deadline(look)
    out = parser.add_argument_group("what to print")
    out.add_argument("--json", action="store_true", help="one JSON document on stdout")
    out.add_argument(
        "-v", "--verbose", action="store_true", help="also what passed and what does not apply"
    )
    out.add_argument(
        "--fail-on",
        choices=FAIL_ON,
        default="warning",
        help="exit with 1 from this status on (default: warning)",
    )


def run(arguments: argparse.Namespace) -> int:
    if arguments.nccl_tests:
        check_nccl_tests.refuse_other_work(arguments)
        return check_nccl_tests.run(arguments, plan_from(arguments))
    if arguments.topology:
        check_topology.refuse_other_work(arguments)
        return check_topology.run(arguments, plan_from(arguments))
    done = check_nodes.run(arguments)
    return done if isinstance(done, int) else _this_machine(arguments, done)


def _this_machine(arguments: argparse.Namespace, also_found: list[Finding]) -> int:
    from holdfast import catalogue
    from holdfast.check.collect import collect
    from holdfast.check.reader_list import readers_for
    from holdfast.view import document, gpu_line, text

    began = time.monotonic()
    plan = plan_from(arguments)
    faults = catalogue.choose(names(arguments.only), names(arguments.skip))
    also = [*(() if arguments.json else BANNER_NEEDS), *(SMOKE_NEEDS if arguments.smoke else ())]
    facts = collect(
        plan, readers_for(faults, also), seconds=arguments.deadline, say=streams.narrate
    )
    if arguments.smoke:
        facts = smoke(facts, named=arguments.nproc_per_node is not None)
    findings = [*also_found, *catalogue.check(facts, faults)]
    took = time.monotonic() - began
    counts = text.count(findings)
    if arguments.json:
        streams.answer(
            document.check(findings, counts, took, facts.smoke), encoding=document.ENCODING
        )
    else:
        colour = text.wants_colour(sys.stdout)
        body = text.report(
            findings, verbose=arguments.verbose, colour=colour, width=streams.width()
        )
        head = "\n".join(line for line in (text.banner(facts), gpu_line.describe(facts)) if line)
        parts = [head, text.smoke_table(facts), body, text.summary(counts, took)]
        streams.answer("\n\n".join(part for part in parts if part))
        _hint(findings, timed_out=facts.timed_out)
    worst = max((f.status.concern for f in findings), default=0)
    return int(worst >= FAIL_ON[arguments.fail_on])


def plan_from(arguments: argparse.Namespace) -> Plan:
    from holdfast.check.plan import Flags, make_plan
    from holdfast.check.readers.devices import accelerator_nodes

    flags = Flags(
        port=arguments.port,
        nproc_per_node=arguments.nproc_per_node,
        nnodes=arguments.nnodes,
        master_addr=arguments.master_addr,
        checkpoint_folders=tuple(arguments.ckpt),
        launcher_pid=arguments.launcher_pid,
    )
    return make_plan(flags, os.environ, accelerators=len(accelerator_nodes()))


def smoke(facts: MachineFacts, *, named: bool) -> MachineFacts:
    """Run the smoke test and add what it saw to the facts."""
    import msgspec

    from holdfast.analysis.machine.gpus_in_use import why_leave_alone
    from holdfast.check.smoke import conduct
    from holdfast.check.smoke.rank import shares_gpus

    plan = facts.plan
    if not named and plan.nproc == 1 and facts.accelerators == ():
        plan = msgspec.structs.replace(plan, nproc=4)  # one rank alone would prove nothing
    leave = "" if shares_gpus() else why_leave_alone(facts)
    seen = conduct.run(plan, say=streams.narrate, loopback=facts.loopback, leave_gpus=leave)
    return msgspec.structs.replace(facts, smoke=seen)


def _hint(findings: list[Finding], *, timed_out: bool) -> None:
    if timed_out:
        streams.remark("hint: `--deadline 60` gives more time to what did not answer")
    worst = max(findings, key=lambda f: f.status.concern, default=None)
    if worst and worst.status.concern > 1:
        streams.remark(f"hint: `holdfast explain {worst.code}` says more")
