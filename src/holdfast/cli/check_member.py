"""The part of one node in `holdfast check` on several machines."""

from __future__ import annotations

import argparse
import contextlib
import os
import socket
import time
from typing import TYPE_CHECKING

from holdfast.cli import streams
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from holdfast.check.nodes.messages import Arrival, Finish
    from holdfast.findings import Finding
    from holdfast.nodes.channel import Channel
    from holdfast.nodes.reach.meeting import MeetingPlan
    from holdfast.nodes.token import Token

JOIN_SECONDS = 30.0
"""how long a node looks for its coordinator, which may be started later"""
TOKEN_SECONDS = 5.0
"""how long it then looks for the coordinator's token on a file server"""
TOKEN_AGAIN = 1.0


def serve_over_pipes(arguments: argparse.Namespace) -> int:
    """As a member that ssh, or the coordinator on this machine, has started."""
    import asyncio

    import msgspec

    from holdfast.check.nodes import messages
    from holdfast.check.nodes.member import serve
    from holdfast.nodes.channel_errors import ChannelClosed
    from holdfast.nodes.handshake import Introduction
    from holdfast.nodes.pipes import channel_over_stdio

    host = socket.gethostname()
    arrival = messages.Arrival(host=host)
    if arguments.arrival:
        try:
            arrival = msgspec.json.decode(arguments.arrival, type=messages.Arrival)
        except msgspec.DecodeError as problem:
            raise ConfigError(f"--arrival: {problem}") from None

    async def member() -> None:
        async with channel_over_stdio(
            understands=messages.Request, me=Introduction(node=host), seconds=JOIN_SECONDS
        ) as channel:
            await serve(channel, arrival)

    try:
        asyncio.run(member())
    except ChannelClosed:  # it was interrupted, and says so itself
        return 1
    return 0


def join_check(arguments: argparse.Namespace, plan: MeetingPlan) -> int | list[Finding]:
    """As one of the other nodes; without a coordinator it can only say that there is none."""
    import asyncio

    from holdfast.check.nodes import messages
    from holdfast.check.nodes.member import serve
    from holdfast.nodes.channel_errors import CouldNotJoin, WrongToken
    from holdfast.nodes.handshake import Introduction
    from holdfast.nodes.join import join

    async def joined(token: Token) -> Channel:
        """Node 0 of a Slurm step may hand its token over later than we looked for it."""
        end = time.monotonic() + (arguments.wait or JOIN_SECONDS)
        later = _handed_later(arguments, plan)
        while True:
            token = (later() if later else None) or token
            try:
                return await join(
                    plan.host,
                    plan.port,
                    token=token,
                    understands=messages.Request,
                    me=Introduction(node=socket.gethostname()),
                    seconds=max(0.1, end - time.monotonic()),
                )
            except WrongToken:
                if later is None or time.monotonic() >= end:
                    raise
                await asyncio.sleep(TOKEN_AGAIN)

    async def member(token: Token) -> Finish:
        channel = await joined(token)
        try:
            return await serve(channel, arrival_of(plan))
        finally:
            await channel.close()

    streams.narrate(f"joining the check of {plan.nodes} nodes at {plan.host}:{plan.port}")
    try:
        with token_of(arguments, plan, coordinates=False) as token:
            end = asyncio.run(member(token))
    except CouldNotJoin as problem:
        streams.narrate("no coordinator answers; this machine is looked at alone")
        return _no_coordinator(plan, problem.sentence)
    streams.narrate(end.words)
    return end.exit_code


def _no_coordinator(plan: MeetingPlan, why: str) -> list[Finding]:
    from holdfast import catalogue
    from holdfast.analysis.machine import Unread
    from holdfast.analysis.nodes import Absence, NodesFacts
    from holdfast.check.plan import Flags, make_plan

    nothing = Unread(why="no coordinator answers")
    absent = Absence(name=plan.host, why=why, hint=f"nc -zv {plan.host} {plan.port}")
    facts = NodesFacts(
        plan=make_plan(Flags(nnodes=str(plan.nodes)), {}, accelerators=0),
        nodes=(),
        absent=(absent,),
        coordinator=socket.gethostname(),
        routes=nothing,
        reach=nothing,
        sizes=nothing,
        losses=nothing,
    )
    return catalogue.by_slug("node-lost").ask_nodes(facts)


def arrival_of(plan: MeetingPlan) -> Arrival:
    from holdfast.check.nodes import messages

    name = plan.own_name or socket.gethostname()
    return messages.Arrival(host=name, index=plan.index, rack=plan.rack)


def _handed_later(
    arguments: argparse.Namespace, plan: MeetingPlan
) -> Callable[[], Token | None] | None:
    from holdfast.nodes.reach.shared_token import handed_token
    from holdfast.nodes.token import VARIABLE

    if not plan.names or arguments.token_file or VARIABLE in os.environ:
        return None
    return lambda: handed_token(plan.job, os.environ, seconds=0)


@contextlib.contextmanager
def token_of(
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
