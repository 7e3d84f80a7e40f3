"""`holdfast check` on several machines: gather the nodes, survey them, say what was found."""

from __future__ import annotations

import argparse
import os
from typing import TYPE_CHECKING

from holdfast.cli import check_member, check_survey, machines, streams
from holdfast.cli.choices import seconds
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from holdfast.findings import Finding
    from holdfast.nodes.reach.meeting import MeetingPlan


def add_arguments(parser: argparse.ArgumentParser) -> None:
    nodes = parser.add_argument_group(
        "several machines", "all nodes of the job, and the paths between them"
    )
    nodes.add_argument(
        "--join", metavar="HOST:PORT", help="meet the other nodes there: same command on each"
    )
    machines.add_arguments(nodes, "reach these nodes")
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


def run(arguments: argparse.Namespace) -> int | list[Finding]:
    """The exit code; or what to add to a check of this machine only, which is what remains."""
    if arguments.member:
        return check_member.serve_over_pipes(arguments)
    if arguments.this_machine:
        return []
    if arguments.hosts is not None or arguments.hostfile is not None:
        return _over_ssh(arguments)
    plan = _meeting(arguments)
    if plan is None:
        return []
    if plan.steps_aside:
        streams.narrate(plan.steps_aside)
        return 0
    return _meet(arguments, plan)


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
            streams.narrate(f"this machine only; all nodes of the allocation: `{alone.hint}`")
        return None
    plan = plan_meeting(typed, os.environ)
    return None if isinstance(plan, Alone) or not plan.host else plan


def _meet(arguments: argparse.Namespace, plan: MeetingPlan) -> int | list[Finding]:
    import errno

    from holdfast.check.nodes.gather import gather_at
    from holdfast.check.readers.names import resolve
    from holdfast.check.readers.network import own_addresses
    from holdfast.nodes.channel_errors import CannotListen
    from holdfast.nodes.reach.meeting import MeetingRole, bind_addresses, role

    for note in plan.notes:
        streams.narrate(note)
    here, why = role(plan, resolved=resolve(plan.host).addresses, own=own_addresses())
    if here is MeetingRole.JOIN:
        return check_member.join_check(arguments, plan)
    streams.narrate(
        f"coordinating the check of {plan.nodes} nodes at {plan.host}:{plan.port}, because "
        f"{why}; `--this-machine` looks at this one only"
    )
    question = check_survey.question_of(arguments, nodes=plan.nodes, meeting_host=plan.host)
    try:
        with check_member.token_of(arguments, plan, coordinates=True) as token:
            streams.narrate(token.in_words())
            gathering = gather_at(
                bind_addresses(plan.host),
                plan.port,
                token=token,
                expected=plan.nodes,
                names=plan.names,
                arrival=check_member.arrival_of(plan),
                wait=arguments.wait,
                say=streams.narrate,
            )
            return check_survey.coordinate(arguments, question, gathering)
    except CannotListen as problem:
        if here is MeetingRole.COORDINATE_IF_FREE and problem.code == errno.EADDRINUSE:
            return check_member.join_check(arguments, plan)
        raise


def _over_ssh(arguments: argparse.Namespace) -> int:
    from holdfast.check.nodes.gather_over_ssh import gather_over_ssh

    if arguments.join:
        raise ConfigError("--join does not go with --hosts: over ssh the nodes need not meet")
    named = machines.named(arguments.hosts, arguments.hostfile) or []
    streams.narrate(f"reaching {len(named)} nodes over ssh")
    gathering = gather_over_ssh(
        named, remote_python=arguments.remote_python, wait=arguments.wait, say=streams.narrate
    )
    # An alias of ssh's configuration means nothing to the nodes: only a named master is judged.
    question = check_survey.question_of(arguments, nodes=len(named), meeting_host="")
    return check_survey.coordinate(arguments, question, gathering)
