"""`holdfast check` on several machines: gather the nodes, survey them, say what was found."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import sys
import time
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.cli.choices import DEADLINE, FAIL_ON, names, seconds
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from contextlib import AbstractAsyncContextManager

    from holdfast.analysis.nodes import NodesFacts
    from holdfast.check.nodes.gather import Gathered
    from holdfast.check.nodes.messages import Arrival, Finish
    from holdfast.check.nodes.survey import Question
    from holdfast.fault import Fault
    from holdfast.findings import Finding
    from holdfast.nodes.reach.meeting import MeetingPlan
    from holdfast.nodes.token import Token

NODE_DEADLINE = 3.0
"""seconds for a fact of a node, where none is typed: other nodes may share its processor"""
JOIN_SECONDS = 30.0
"""how long a node looks for its coordinator, which may be started later"""
TOKEN_SECONDS = 5.0
"""how long it then looks for the coordinator's token on a file server"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    nodes = parser.add_argument_group(
        "several machines", "all nodes of the job, and the paths between them"
    )
    nodes.add_argument(
        "--join", metavar="HOST:PORT", help="meet the other nodes there: same command on each"
    )
    nodes.add_argument("--hosts", metavar="A,B,…", help="reach these nodes over ssh")
    nodes.add_argument("--hostfile", metavar="FILE", help="as --hosts, one host a line")
    nodes.add_argument(
        "--remote-python", metavar="PATH", help="the Python with holdfast there (default: as here)"
    )
    nodes.add_argument(
        "--wait", type=seconds, metavar="SECONDS", help="how long to wait for one more node"
    )
    nodes.add_argument(
        "--token-file", metavar="FILE", help="a secret that all nodes know (or HOLDFAST_TOKEN)"
    )
    nodes.add_argument(
        "--this-machine", action="store_true", help="look at this machine only, whatever is set"
    )
    parser.add_argument("--member", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--arrival", help=argparse.SUPPRESS)


def run(arguments: argparse.Namespace) -> int | None:
    """The exit code; None when this check is about one machine."""
    if arguments.member:
        return _serve_over_pipes(arguments)
    if arguments.this_machine:
        return None
    if arguments.hosts or arguments.hostfile:
        return _over_ssh(arguments)
    plan = _meeting(arguments)
    if plan is None:
        return None
    if plan.steps_aside:
        streams.remark(f"holdfast> {plan.steps_aside}")
        return 0
    return _meet(arguments, plan)


# --- as a member ----------------------------------------------------------------------------------


def _serve_over_pipes(arguments: argparse.Namespace) -> int:
    """As a member that ssh, or the coordinator on this machine, has started."""
    import asyncio

    import msgspec

    from holdfast.check.nodes import messages
    from holdfast.check.nodes.member import serve
    from holdfast.nodes.handshake import Introduction
    from holdfast.nodes.pipes import channel_over_stdio

    host = socket.gethostname()
    arrival = messages.Arrival(host=host)
    if arguments.arrival:
        arrival = msgspec.json.decode(arguments.arrival, type=messages.Arrival)

    async def member() -> None:
        async with channel_over_stdio(
            understands=messages.Request, me=Introduction(node=host), seconds=JOIN_SECONDS
        ) as channel:
            await serve(channel, arrival)

    asyncio.run(member())
    return 0


def _join(arguments: argparse.Namespace, plan: MeetingPlan) -> int | None:
    """As one of the other nodes. Without a coordinator it looks at itself (None)."""
    import asyncio

    from holdfast.check.nodes import messages
    from holdfast.check.nodes.member import serve
    from holdfast.nodes.channel_errors import CouldNotJoin
    from holdfast.nodes.handshake import Introduction
    from holdfast.nodes.join import join

    async def member(token: Token) -> Finish:
        channel = await join(
            plan.host,
            plan.port,
            token=token,
            understands=messages.Request,
            me=Introduction(node=socket.gethostname()),
            seconds=arguments.wait or JOIN_SECONDS,
        )
        try:
            return await serve(channel, _arrival(plan))
        finally:
            await channel.close()

    _narrate(f"joining the check of {plan.nodes} nodes at {plan.host}:{plan.port}")
    try:
        with _token(arguments, plan, coordinates=False) as token:
            end = asyncio.run(member(token))
    except CouldNotJoin as problem:
        _narrate(f"{problem.sentence}; this machine is looked at alone")
        return None
    _narrate(end.words)
    return end.exit_code


# --- as the coordinator, or one of the others -----------------------------------------------------


def _meeting(arguments: argparse.Namespace) -> MeetingPlan | None:
    """Where the nodes meet: by --join, or where the environment of a job tells it."""
    from holdfast.nodes.reach.environment import Alone, MeetingOptions, plan_meeting

    typed = MeetingOptions(
        nnodes=arguments.nnodes,
        join=arguments.join,
        master_addr=arguments.master_addr,
        master_port=arguments.port,
    )
    # Typed flags alone describe the job; they do not say that the other nodes look too.
    alone = plan_meeting(MeetingOptions(), os.environ)
    if not arguments.join and isinstance(alone, Alone):
        if alone.hint:
            _narrate(f"this machine only; all nodes of the allocation: `{alone.hint}`")
        return None
    plan = plan_meeting(typed, os.environ)
    return None if isinstance(plan, Alone) or not plan.host else plan


def _meet(arguments: argparse.Namespace, plan: MeetingPlan) -> int | None:
    import errno

    from holdfast.check.nodes.gather import gather_at
    from holdfast.check.readers.names import resolve
    from holdfast.check.readers.network import own_addresses
    from holdfast.nodes.channel_errors import CannotListen
    from holdfast.nodes.reach.meeting import MeetingRole, bind_addresses, role

    for note in plan.notes:
        _narrate(note)
    here, why = role(plan, resolved=resolve(plan.host).addresses, own=own_addresses())
    if here is MeetingRole.JOIN:
        return _join(arguments, plan)
    _narrate(
        f"coordinating the check of {plan.nodes} nodes at {plan.host}:{plan.port}, because "
        f"{why}; `--this-machine` looks at this one only"
    )
    question = _question(arguments, nodes=plan.nodes, meeting_host=plan.host)
    try:
        with _token(arguments, plan, coordinates=True) as token:
            _narrate(token.in_words())
            gathering = gather_at(
                bind_addresses(plan.host),
                plan.port,
                token=token,
                expected=plan.nodes,
                names=plan.names,
                arrival=_arrival(plan),
                wait=arguments.wait,
                say=_narrate,
            )
            return _coordinate(arguments, question, gathering)
    except CannotListen as problem:
        if here is MeetingRole.COORDINATE_IF_FREE and problem.code == errno.EADDRINUSE:
            return _join(arguments, plan)
        raise


def _over_ssh(arguments: argparse.Namespace) -> int:
    from holdfast.check.nodes.gather_over_ssh import gather_over_ssh
    from holdfast.nodes.reach import hosts

    if arguments.hosts and arguments.hostfile:
        raise ConfigError("give either --hosts or --hostfile, not both")
    if arguments.join:
        raise ConfigError("--join does not go with --hosts: over ssh the nodes need not meet")
    if arguments.hosts:
        named = hosts.from_option(arguments.hosts)
    else:
        named = hosts.from_file(_text_of(arguments.hostfile), path=arguments.hostfile)
    _narrate(f"reaching {len(named)} nodes over ssh")
    gathering = gather_over_ssh(
        named, remote_python=arguments.remote_python, wait=arguments.wait, say=_narrate
    )
    return _coordinate(
        arguments, _question(arguments, nodes=len(named), meeting_host=named[0].name), gathering
    )


def _text_of(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read(1 << 20)
    except OSError as problem:
        raise ConfigError(f"--hostfile {path}: {problem.strerror}") from None


def _arrival(plan: MeetingPlan) -> Arrival:
    from holdfast.check.nodes import messages

    name = plan.own_name or socket.gethostname()
    return messages.Arrival(host=name, index=plan.index, rack=plan.rack)


@contextlib.contextmanager
def _token(
    arguments: argparse.Namespace, plan: MeetingPlan, *, coordinates: bool
) -> Iterator[Token]:
    """What the user gave to all nodes; else what node 0 of a Slurm step hands over; else none."""
    from holdfast.nodes import token
    from holdfast.nodes.reach.shared_token import handed_token, offered_token

    none = token.open_token(f"{plan.host}:{plan.port}/{plan.job}")
    if arguments.token_file:
        yield token.token_from_file(arguments.token_file)
    elif given := token.token_from_environment(os.environ):
        yield given
    elif not plan.names:
        yield none
    elif coordinates:
        with offered_token(plan.job, os.environ) as offered:
            yield offered or none
    else:
        yield handed_token(plan.job, os.environ, seconds=TOKEN_SECONDS) or none


def _question(arguments: argparse.Namespace, *, nodes: int, meeting_host: str) -> Question:
    """What every node is asked: the job as typed here, on so many nodes."""
    from holdfast.analysis.machine import rendezvous
    from holdfast.check.nodes.survey import Question
    from holdfast.check.plan import Flags, make_plan

    flags = Flags(
        port=arguments.port,
        nproc_per_node=arguments.nproc_per_node,
        nnodes=arguments.nnodes or str(nodes),
        master_addr=arguments.master_addr,
        checkpoint_folders=tuple(arguments.ckpt),
    )
    plan = make_plan(flags, os.environ, accelerators=0)
    return Question(
        flags=flags,
        plan=plan,
        only=tuple(names(arguments.only)),
        skip=tuple(names(arguments.skip)),
        deadline=NODE_DEADLINE if arguments.deadline == DEADLINE else arguments.deadline,
        store_host=rendezvous.master_host(plan)[0] or meeting_host,
    )


def _coordinate(
    arguments: argparse.Namespace,
    question: Question,
    gathering: AbstractAsyncContextManager[Gathered],
) -> int:
    import asyncio

    from holdfast import catalogue

    began = time.monotonic()
    faults = catalogue.choose(question.only, question.skip)
    facts, findings = asyncio.run(_survey(arguments, question, gathering, faults))
    _print(arguments, facts, findings, time.monotonic() - began)
    return _exit_code(arguments, findings, facts)


async def _survey(
    arguments: argparse.Namespace,
    question: Question,
    gathering: AbstractAsyncContextManager[Gathered],
    faults: Sequence[Fault],
) -> tuple[NodesFacts, list[Finding]]:
    import msgspec

    from holdfast import catalogue
    from holdfast.check.nodes.survey import Survey

    coordinator = socket.gethostname()
    async with gathering as gathered:
        survey = Survey(gathered, coordinator=coordinator, say=_narrate)
        facts = await survey.conduct(question)
        if arguments.smoke:
            facts = msgspec.structs.replace(facts, smoke=await survey.smoke(facts))
        findings = catalogue.check_nodes(facts, faults)
        await survey.finish(
            _exit_code(arguments, findings, facts), f"done; the report is on {coordinator}"
        )
    return facts, findings


# --- what it says ---------------------------------------------------------------------------------


def _print(
    arguments: argparse.Namespace, facts: NodesFacts, findings: list[Finding], took: float
) -> None:
    from holdfast.view import document, nodes_text, text

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
    parts = [
        nodes_text.banner(facts),
        nodes_text.matrix(facts),
        nodes_text.smoke_table(facts),
        body,
        text.summary(counts, took),
    ]
    streams.answer("\n\n".join(part for part in parts if part))


def _exit_code(arguments: argparse.Namespace, findings: list[Finding], facts: NodesFacts) -> int:
    """A node that is missing is an error also where `--only` leaves out the check that says so."""
    from holdfast.findings import Status

    worst = max((finding.status.concern for finding in findings), default=0)
    if facts.absent:
        worst = max(worst, Status.ERROR.concern)
    return int(worst >= FAIL_ON[arguments.fail_on])


def _narrate(line: str) -> None:
    streams.remark(f"holdfast> {line}")
