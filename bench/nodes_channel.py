"""What a message between nodes costs the coordinator, beside a bare asyncio echo.

64 members in a process of their own send heartbeats of about 200 bytes to one coordinator and wait
for its answer. Both ways are measured in turn in one session, because timings on a shared machine
are noisy; what counts is the ratio.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import multiprocessing
import statistics
import sys
import time
from collections.abc import AsyncIterator, Callable
from typing import NamedTuple

import msgspec

from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import ChannelError
from holdfast.nodes.handshake import Introduction
from holdfast.nodes.join import join
from holdfast.nodes.listener import listening
from holdfast.nodes.token import fresh_token

TOKEN = fresh_token()
PAGE = b"x" * 180


class Beat(msgspec.Struct, tag=True):
    number: int
    page: bytes


class Heard(msgspec.Struct, tag=True):
    number: int


class Figure(NamedTuple):
    messages_per_second: float
    cpu_per_message: float


@contextlib.asynccontextmanager
async def holdfast_coordinator() -> AsyncIterator[int]:
    async def serve(channel: Channel) -> None:
        with contextlib.suppress(ChannelError):
            while True:
                beat = await channel.receive(seconds=60)
                await channel.send(Heard(beat.number))

    async with listening(
        ["127.0.0.1"],
        0,
        token=TOKEN,
        understands=Beat | Heard,
        serve=serve,
        me=Introduction(node="bench"),
    ) as listener:
        yield listener.port


async def holdfast_member(port: int, count: int) -> None:
    me = Introduction(node="member")
    channel = await join(
        "127.0.0.1", port, token=TOKEN, understands=Beat | Heard, me=me, seconds=60
    )
    for number in range(count):
        await channel.send(Beat(number, PAGE))
        await channel.receive(seconds=60)
    await channel.close()


@contextlib.asynccontextmanager
async def bare_coordinator() -> AsyncIterator[int]:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(asyncio.IncompleteReadError):
            while True:
                length = await reader.readexactly(4)
                await reader.readexactly(int.from_bytes(length, "big"))
                writer.write(length)
                await writer.drain()
        writer.close()

    server = await asyncio.start_server(serve, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


async def bare_member(port: int, count: int) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    for _ in range(count):
        writer.write(len(PAGE).to_bytes(4, "big") + PAGE)
        await writer.drain()
        await reader.readexactly(4)
    writer.close()
    await writer.wait_closed()


WAYS = {
    "bare asyncio echo": (bare_coordinator, bare_member),
    "holdfast channel": (holdfast_coordinator, holdfast_member),
}


def all_members(way: str, port: int, members: int, count: int) -> None:
    async def talk() -> None:
        await asyncio.gather(*(WAYS[way][1](port, count) for _ in range(members)))

    asyncio.run(talk())


async def measured(way: str, members: int, count: int) -> Figure:
    loop = asyncio.get_running_loop()
    async with WAYS[way][0]() as port:
        process = multiprocessing.get_context("fork").Process(
            target=all_members, args=(way, port, members, count)
        )
        began, cpu = time.perf_counter(), time.process_time()
        process.start()
        await loop.run_in_executor(None, process.join)
        seconds, used = time.perf_counter() - began, time.process_time() - cpu
    if process.exitcode:
        raise SystemExit(f"{way}: the members ended with {process.exitcode}")
    total = members * count
    return Figure(total / seconds, used / total)


def median(figures: list[Figure], field: Callable[[Figure], float]) -> float:
    return statistics.median(map(field, figures))


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--members", type=int, default=64)
    options.add_argument("--messages", type=int, default=200, help="of each member")
    options.add_argument("--rounds", type=int, default=5)
    asked = options.parse_args()
    figures: dict[str, list[Figure]] = {way: [] for way in WAYS}
    for _ in range(asked.rounds):
        for way in WAYS:
            figures[way].append(asyncio.run(measured(way, asked.members, asked.messages)))
    rate = {
        way: median(found, lambda one: one.messages_per_second) for way, found in figures.items()
    }
    cost = {way: median(found, lambda one: one.cpu_per_message) for way, found in figures.items()}
    for way in WAYS:
        print(f"{way:<18} {rate[way]:8.0f} messages/s   {cost[way] * 1e6:6.0f} µs of CPU each")
    ours, bare = cost["holdfast channel"], cost["bare asyncio echo"]
    print(f"\na message costs the coordinator {ours / bare:.1f} x a bare echo")
    beats = asked.members * 5
    print(f"{asked.members} members that beat 5 times a second: {beats * ours:.1%} of a core")
    return 0


if __name__ == "__main__":
    sys.exit(main())
