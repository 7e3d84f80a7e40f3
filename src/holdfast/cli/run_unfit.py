"""A node that fails its own checks tells the others before it ends, so that none waits for it."""

from __future__ import annotations

import contextlib
import errno
import time
from typing import TYPE_CHECKING

from holdfast.cli.run_card import node_card

if TYPE_CHECKING:
    from holdfast.cli.run_nodes import NodeStart
    from holdfast.run.nodes.messages import EndRound

TELL_SECONDS = 60.0
"""seconds for the others to come: nodes that are started together come within that"""
ANSWER_SECONDS = 10.0


def tell_others(here: NodeStart) -> int:
    """The exit code of this launcher. Where the nodes meet in etcd there is no place to say it."""
    from holdfast.cli.run_nodes import role_of
    from holdfast.nodes.channel_errors import CannotListen, ChannelError
    from holdfast.nodes.reach.meeting import MeetingRole
    from holdfast.run.launch import exit_codes
    from holdfast.run.nodes.joining import ThisNodeIsMeant

    if here.meeting.etcd:
        return exit_codes.CHECKS_FAILED
    role, _ = role_of(here)
    here.screen.say(
        f"not started; telling the other nodes, for up to {TELL_SECONDS:.0f} s (Ctrl-C ends this)"
    )
    try:
        if role is MeetingRole.JOIN:
            _as_member(here)
        else:
            try:
                _as_coordinator(here)
            except CannotListen as problem:
                if role is MeetingRole.COORDINATE or problem.code != errno.EADDRINUSE:
                    raise
                _as_member(here)
    except ChannelError as problem:
        here.screen.say(f"the other nodes were not told: {problem.sentence}")
    except (ThisNodeIsMeant, KeyboardInterrupt):
        here.screen.say("the other nodes were not told")
    return exit_codes.CHECKS_FAILED


def _as_member(here: NodeStart) -> None:
    """The coordinator decides whether the others start without this node."""
    from holdfast.cli.run_nodes import token_of
    from holdfast.run.nodes.joining import join_coordinator, own_address_towards
    from holdfast.run.nodes.messages import EndRound

    card = node_card(here, towards=own_address_towards(here.resolved, here.plan.port))
    with token_of(here, coordinates=False) as token:
        link = join_coordinator(
            here.plan,
            token=token,
            card=card,
            rendezvous_id=here.meeting.rdzv_id,
            seconds=min(here.meeting.join_timeout, TELL_SECONDS),
            own=here.own,
            say=here.screen.say,
        )
    with contextlib.closing(link):
        here.screen.say(f"{link.coordinator} was told")
        until = time.monotonic() + ANSWER_SECONDS
        while time.monotonic() < until and not link.lost():
            if any(isinstance(message, EndRound) for message in link.news()):
                return
            link.wait(0.2)


def _as_coordinator(here: NodeStart) -> None:
    """Without the coordinator's node there is no job: each that comes is told to end."""
    from holdfast.cli.run_nodes import new_run_id, own_place, token_of
    from holdfast.nodes.reach.run_meeting import listen_addresses
    from holdfast.run.nodes.link.coordinator_link import ListeningLink
    from holdfast.run.nodes.link.interface import NodeJoined

    card = node_card(here, towards=own_place(here))
    told: set[str] = set()
    with token_of(here, coordinates=True) as token:
        link = ListeningLink(
            listen_addresses(here.plan, resolved=here.resolved, own=here.own),
            here.plan.port,
            token=token,
            node=card.name,
            run=new_run_id(here),
            rendezvous_id=here.meeting.rdzv_id,
        )
        with contextlib.closing(link):
            until = time.monotonic() + TELL_SECONDS
            while time.monotonic() < until and len(told) < here.meeting.most - 1:
                for news in link.news():
                    if isinstance(news, NodeJoined):
                        link.send(news.node, _order(card.name, here.unfit))
                        told.add(news.node)
                link.wait(0.2)


def _order(node: str, found: str) -> EndRound:
    from holdfast.run.launch import exit_codes
    from holdfast.run.nodes.messages import EndRound

    return EndRound(
        round=0,
        action="stop",
        exit_code=exit_codes.CHECKS_FAILED,
        reason=f"not started: {node} cannot start: {found}",
    )
