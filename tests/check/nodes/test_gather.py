from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from holdfast.check.nodes import messages
from holdfast.check.nodes.gather import Arrivals, missing
from holdfast.nodes.channel_errors import Refused
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.join import join
from holdfast.nodes.listener import listening
from holdfast.nodes.token import fresh_token

TOKEN = fresh_token()


class Door:
    """Where members of a test come in; their ends are closed with it."""

    def __init__(self, port: int, ends: contextlib.AsyncExitStack) -> None:
        self._port = port
        self._ends = ends

    async def come(self, host: str, *, index: int | None = None) -> None:
        channel = await join(
            "127.0.0.1",
            self._port,
            token=TOKEN,
            understands=messages.Request,
            me=Introduction(node=host),
            seconds=20,
        )
        self._ends.push_async_callback(channel.close)
        await channel.send(messages.Arrival(host=host, index=index))


@contextlib.asynccontextmanager
async def door(arrivals: Arrivals) -> AsyncIterator[Door]:
    async with listening(
        ["127.0.0.1"],
        0,
        token=TOKEN,
        understands=messages.Reply,
        serve=arrivals.serve,
        admit=arrivals.admit,
        me=Introduction(node="coordinator"),
    ) as listener:
        async with contextlib.AsyncExitStack() as ends:
            yield Door(listener.port, ends)
        arrivals.over()


async def gathered(*hosts: tuple[str, int | None]) -> list[str]:
    arrivals = Arrivals(len(hosts), lambda _: None)
    async with door(arrivals) as entrance:
        for host, index in hosts:
            await entrance.come(host, index=index)
        await arrivals.settle(20)
        return list(arrivals.gathered((), ()).members)


def test_nodes_stand_in_the_order_of_their_numbers_else_of_their_names() -> None:
    assert asyncio.run(gathered(("c", 0), ("a", 2), ("b", 1))) == ["c", "b", "a"]
    assert asyncio.run(gathered(("n10", None), ("n2", None))) == ["n2", "n10"]


def test_two_nodes_of_one_name_are_told_apart() -> None:
    assert asyncio.run(gathered(("node", None), ("node", None))) == ["node", "node#2"]


def test_a_node_too_many_and_a_node_too_late_are_told() -> None:
    async def scenario() -> tuple[str, str]:
        full, begun = Arrivals(1, lambda _: None), Arrivals(3, lambda _: None)
        async with door(full) as entrance:
            await entrance.come("a")
            await full.settle(20)
            with pytest.raises(Refused) as too_many:
                await entrance.come("b")
        async with door(begun) as entrance:
            await entrance.come("a")
            await begun.settle(0.01)
            with pytest.raises(Refused) as too_late:
                await entrance.come("b")
        return too_many.value.why, too_late.value.why

    too_many, too_late = asyncio.run(scenario())

    assert too_many == "all 1 nodes are here already"
    assert too_late == "the check has begun without it: it came too late"


def test_a_node_that_is_being_admitted_is_waited_for() -> None:
    async def scenario() -> bool:
        arrivals = Arrivals(2, lambda _: None)
        waiting = asyncio.ensure_future(arrivals.settle(0.6))
        for _ in range(8):
            await asyncio.sleep(0.1)
            assert arrivals.admit(Introduction(node="slow").hello(TOKEN)) == ""
        still = not waiting.done()
        await asyncio.wait_for(waiting, 20)
        return still

    assert asyncio.run(scenario())


def test_who_is_missing_has_a_name_where_the_scheduler_told_it() -> None:
    (one,) = missing(3, ("n1", "n2", "n3"), ("n1.cluster", "n3"), ())

    assert (one.name, one.why, one.hint) == ("n2", "did not join", "ssh n2 hostname")


def test_names_that_do_not_fit_accuse_no_node() -> None:
    found = missing(3, ("pod-0", "pod-1", "pod-2"), ("abc", "def"), ())

    assert [one.name for one in found] == [""]


def test_who_was_turned_away_is_said_with_who_is_missing() -> None:
    (one,) = missing(2, (), ("a",), ("10.0.0.9 does not know the token",))

    assert "turned away meanwhile: 10.0.0.9 does not know the token" in one.why


def test_nobody_is_missing() -> None:
    assert missing(2, (), ("a", "b"), ()) == ()
