"""Members that come at the wrong moment, over real sockets."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from holdfast.analysis.nodes import Outcome, PortKind
from holdfast.check.nodes import messages
from holdfast.check.nodes.gather import COORDINATOR, Arrivals
from holdfast.check.nodes.survey import Survey
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import Refused
from holdfast.nodes.clock_exchange import ClockPong, read_clocks
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.join import join
from holdfast.nodes.listener import Listener, listening
from holdfast.nodes.probing.messages import TriedPaths
from holdfast.nodes.probing.plan import without_lost
from tests.faults.made_nodes import path, some_nodes
from tests.nodes.conversation import LONG, TOKEN, play, until


async def joined(listener: Listener, name: str) -> Channel:
    return await join(
        "127.0.0.1",
        listener.port,
        token=TOKEN,
        understands=messages.Request,
        me=Introduction(node=name),
        seconds=LONG,
    )


def meeting(arrivals: Arrivals):  # type: ignore[no-untyped-def]
    return listening(
        ["127.0.0.1"],
        0,
        token=TOKEN,
        understands=messages.Reply,
        serve=arrivals.serve,
        admit=arrivals.admit,
        me=COORDINATOR,
    )


def test_a_node_that_is_admitted_and_says_its_name_too_late_hears_why() -> None:
    """The door was passed while there was room; then the others came, or the check began."""

    async def scene() -> None:
        arrivals = Arrivals(1, lambda _: None)
        async with meeting(arrivals) as listener:
            first, second = await joined(listener, "a"), await joined(listener, "b")
            await first.send(messages.Arrival(host="a"))
            await arrivals.settle(LONG)
            await second.send(messages.Arrival(host="b"))
            end = await second.receive(seconds=LONG)
            assert isinstance(end, messages.Finish)
            assert end.exit_code == 2
            assert "all 1 nodes are here already" in end.words
            with pytest.raises(Refused, match="all 1 nodes are here already"):
                await joined(listener, "c")
            assert list(arrivals.gathered((), ()).members) == ["a"]
            arrivals.over()
            await first.close()
            await second.close()

    play(scene())


def test_a_clock_that_answers_too_late_does_not_lose_its_node() -> None:
    async def scene() -> None:
        arrivals = Arrivals(1, lambda _: None)
        async with meeting(arrivals) as listener:
            member = await joined(listener, "a")
            await member.send(messages.Arrival(host="a"))
            await arrivals.settle(LONG)
            gathered = arrivals.gathered((), ())
            survey = Survey(gathered, coordinator="x", say=lambda _: None)
            await member.send(ClockPong(7, read_clocks()))
            await member.send(messages.ResolvedNames(names=(), store=None))
            request = messages.ResolveNames(names=(), endpoint="")
            asked = asyncio.ensure_future(
                survey._ask({"a": request}, messages.ResolvedNames, "resolving names", LONG)
            )
            await until(asked.done)
            assert list(asked.result()) == ["a"]
            arrivals.over()
            await member.close()

    play(scene())


def test_a_node_that_leaves_while_paths_are_tried_is_not_a_bad_path() -> None:
    """Its listeners went with it: connects fail and datagrams get no answer."""
    facts = path(some_nodes(3), "node-a", "node-c", Outcome.REFUSED, PortKind.EPHEMERAL)
    facts = path(facts, "node-a", "node-b", Outcome.DROPPED, PortKind.MASTER)
    told: dict[str, Any] = {
        field: tuple(one for one in getattr(facts, field) if one.source == "node-a")
        for field in ("routes", "reach", "sizes", "losses")
    }
    kept = without_lost(TriedPaths(**told), {"node-a", "node-b"})
    assert [(one.target.node, one.target.kind, one.outcome) for one in kept.reach] == [
        ("node-b", PortKind.MASTER, Outcome.DROPPED),
        ("node-b", PortKind.EPHEMERAL, Outcome.OK),
        ("node-c", PortKind.MASTER, Outcome.OK),
    ]
    assert {one.target.node for one in kept.sizes} == {"node-b"}
    assert {one.target.node for one in kept.losses} == {"node-b"}
    assert kept.routes == told["routes"]
