"""A coordinator and members over real sockets, with messages made for the tests."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

import msgspec

from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.join import join
from holdfast.nodes.listener import Listener, listening
from holdfast.nodes.token import Token, fresh_token

TOKEN = fresh_token()
COORDINATOR = Introduction(node="node-0")
LONG = 20.0
"""seconds: a deadline that only a bug or a frozen machine reaches"""
T = TypeVar("T")


class Ask(msgspec.Struct, tag=True, frozen=True):
    number: int
    text: str = ""


class Answer(msgspec.Struct, tag=True, frozen=True):
    number: int
    text: str = ""


Messages = Ask | Answer


def play(scene: Coroutine[Any, Any, T]) -> T:
    async def within() -> T:
        return await asyncio.wait_for(scene, 3 * LONG)

    return asyncio.run(within())


async def answer_all(channel: Channel) -> None:
    """What a coordinator does in most tests: an Answer to each Ask, until the peer is gone."""
    with contextlib.suppress(ChannelError):
        while True:
            asked = await channel.receive(seconds=LONG)
            await channel.send(Answer(asked.number + 1, asked.text))


@contextlib.asynccontextmanager
async def coordinator(
    serve: Callable[[Channel], Awaitable[None]] = answer_all,
    addresses: tuple[str, ...] = ("127.0.0.1",),
    port: int = 0,
    token: Token = TOKEN,
    me: Introduction = COORDINATOR,
    **options: Any,
) -> AsyncIterator[Listener]:
    async with listening(
        addresses, port, token=token, understands=Messages, serve=serve, me=me, **options
    ) as listener:
        yield listener


async def member(
    listener: Listener, *, token: Token = TOKEN, node: str = "node-1", **options: Any
) -> Channel:
    options = {"seconds": LONG, "host": "127.0.0.1", **options}
    return await join(
        port=listener.port,
        token=token,
        understands=Messages,
        me=Introduction(node=node, run=options.pop("run", "")),
        **options,
    )


async def still_serves(listener: Listener) -> None:
    """A node with the right token gets in and is answered."""
    channel = await member(listener, node="late-but-honest")
    await channel.send(Ask(41))
    assert await channel.receive(seconds=LONG) == Answer(42)
    await channel.close()


async def until(condition: Callable[[], object]) -> None:
    async def poll() -> None:
        while not condition():
            await asyncio.sleep(0.005)

    await asyncio.wait_for(poll(), LONG)
