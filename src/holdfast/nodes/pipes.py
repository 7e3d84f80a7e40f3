"""A channel over pipes: ssh's standard input and output. ssh has authenticated both sides."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator
from typing import Any

from holdfast.nodes import frames
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError, ChannelTimeout, NotHoldfast, WrongVersion
from holdfast.nodes.framed_stream import FramedStream, quoted
from holdfast.nodes.handshake import Introduction, Side, greet_coordinator, greet_member

LARGEST_NOISE = 256 << 10
"""bytes of banners before the first word of holdfast"""


async def channel_over(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    *,
    understands: Any,
    me: Introduction,
    peer: str,
    seconds: float,
    limit: int = frames.LARGEST_MESSAGE,
) -> Channel:
    """As the coordinator, to a member that was started at the other end of these pipes.

    Banners and echoes before its first word are skipped, and quoted in the error when that word
    never comes.
    """
    stream = FramedStream(reader, writer, peer=peer)
    noise = bytearray()

    async def skip_noise(stream: FramedStream) -> None:
        await stream.skip_to_preamble(Side.MEMBER.preamble, largest=LARGEST_NOISE, noise=noise)

    try:
        theirs = await greet_member(stream, me, token=None, seconds=seconds, skip_noise=skip_noise)
    except ChannelError as problem:
        if isinstance(problem, ChannelTimeout):
            noise += await stream.unread_rest()
        if isinstance(problem, WrongVersion):
            await stream.close()  # our answer is on its way
        stream.abort(problem)
        if noise and not isinstance(problem, (NotHoldfast, WrongVersion)):
            why = problem.sentence.removeprefix(f"{peer} ")
            raise NotHoldfast(peer, why, said=quoted(bytes(noise[-2000:]), longest=500)) from None
        raise
    except BaseException:
        stream.abort()
        raise
    stream.largest = limit
    return Channel(stream, understands=understands, node=theirs.node, noise=quoted(bytes(noise)))


@contextlib.asynccontextmanager
async def channel_over_stdio(
    *,
    understands: Any,
    me: Introduction,
    seconds: float,
    limit: int = frames.LARGEST_MESSAGE,
) -> AsyncIterator[Channel]:
    """As a member that ssh started: to the coordinator at the other end of stdin and stdout.

    Both are taken away from the rest of the process first, so that a stray print goes to stderr
    and not into the middle of a message.
    """
    reader, writer, incoming = await _own_stdio()
    stream = FramedStream(reader, writer, peer="the coordinator")
    try:
        theirs = await greet_coordinator(stream, me, token=None, seconds=seconds)
        stream.largest = limit
        yield Channel(stream, understands=understands, node=theirs.node)
    finally:
        await stream.close()
        incoming.close()


async def _own_stdio() -> tuple[asyncio.StreamReader, asyncio.StreamWriter, asyncio.BaseTransport]:
    loop = asyncio.get_running_loop()
    taken_in, taken_out = os.dup(0), os.dup(1)
    with open(os.devnull, "rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    os.dup2(2, 1)
    reader = asyncio.StreamReader()
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(taken_in, "rb", 0)
    )
    outgoing, flow = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(taken_out, "wb", 0)
    )
    return reader, asyncio.StreamWriter(outgoing, flow, reader, loop), incoming
