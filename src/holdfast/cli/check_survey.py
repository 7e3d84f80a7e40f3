"""The coordinator's part of `holdfast check` on several machines: ask, judge, print."""

from __future__ import annotations

import argparse
import os
import socket
import sys
import time
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.cli.choices import DEADLINE, FAIL_ON, names

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from holdfast.analysis.nodes import NodesFacts
    from holdfast.check.nodes.gather import Gathered
    from holdfast.check.nodes.survey import SurveyQuestion
    from holdfast.fault import Fault
    from holdfast.findings import Finding

NODE_DEADLINE = 3.0
"""seconds for a fact of a node, where none is typed: other nodes may share its processor"""


def question_of(arguments: argparse.Namespace, *, nodes: int, meeting_host: str) -> SurveyQuestion:
    """What every node is asked: the job as typed here, on so many nodes."""
    from holdfast.analysis.machine import rendezvous
    from holdfast.check.nodes.survey import SurveyQuestion
    from holdfast.check.plan import Flags, make_plan

    flags = Flags(
        port=arguments.port,
        nproc_per_node=arguments.nproc_per_node,
        nnodes=arguments.nnodes or str(nodes),
        master_addr=arguments.master_addr,
        checkpoint_folders=tuple(arguments.ckpt),
    )
    plan = make_plan(flags, os.environ, accelerators=0)
    return SurveyQuestion(
        flags=flags,
        plan=plan,
        only=tuple(names(arguments.only)),
        skip=tuple(names(arguments.skip)),
        deadline=NODE_DEADLINE if arguments.deadline == DEADLINE else arguments.deadline,
        store_host=rendezvous.master_host(plan)[0] or meeting_host,
    )


def coordinate(
    arguments: argparse.Namespace,
    question: SurveyQuestion,
    gathering: AbstractAsyncContextManager[Gathered],
) -> int:
    import asyncio

    from holdfast import catalogue

    began = time.monotonic()
    faults = catalogue.choose(question.only, question.skip)
    facts, findings = asyncio.run(_survey(arguments, question, gathering, faults))
    _print(arguments, facts, findings, time.monotonic() - began)
    return exit_code(arguments, findings, facts)


async def _survey(
    arguments: argparse.Namespace,
    question: SurveyQuestion,
    gathering: AbstractAsyncContextManager[Gathered],
    faults: Sequence[Fault],
) -> tuple[NodesFacts, list[Finding]]:
    import msgspec

    from holdfast import catalogue
    from holdfast.check.nodes.survey import Survey

    coordinator = socket.gethostname()
    async with gathering as gathered:
        survey = Survey(gathered, coordinator=coordinator, say=streams.narrate)
        facts = await survey.conduct(question)
        if arguments.smoke:
            facts = msgspec.structs.replace(facts, smoke=await survey.smoke(facts))
        findings = catalogue.check_nodes(facts, faults)
        await survey.finish(
            exit_code(arguments, findings, facts), f"done; the report is on {coordinator}"
        )
    return facts, findings


# --- what it says ---------------------------------------------------------------------------------


def _print(
    arguments: argparse.Namespace, facts: NodesFacts, findings: list[Finding], took: float
) -> None:
    from holdfast.view import document, gpu_line, nodes_text, text

    counts = text.count(findings)
    if arguments.json:
        printed = document.check_nodes(facts, findings, counts, took)
        streams.answer(printed, encoding=document.ENCODING)
        return
    body = nodes_text.report(
        findings,
        facts,
        verbose=arguments.verbose,
        colour=text.wants_colour(sys.stdout),
        width=streams.width(),
    )
    head = "\n".join(line for line in (nodes_text.banner(facts), gpu_line.of_nodes(facts)) if line)
    parts = [
        head,
        nodes_text.matrix(facts),
        nodes_text.smoke_table(facts),
        body,
        text.summary(counts, took),
    ]
    streams.answer("\n\n".join(part for part in parts if part))


def exit_code(arguments: argparse.Namespace, findings: list[Finding], facts: NodesFacts) -> int:
    """A node that is missing is an error also where `--only` leaves out the check that says so."""
    from holdfast.findings import Status

    worst = max((finding.status.concern for finding in findings), default=0)
    if facts.absent:
        worst = max(worst, Status.ERROR.concern)
    return int(worst >= FAIL_ON[arguments.fail_on])
