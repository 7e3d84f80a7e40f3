"""Peers that do not keep to the protocol, over real sockets: by hand, recorded, or in between."""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from holdfast.nodes import frames
from holdfast.nodes.handshake import Greeting, Side
from holdfast.nodes.listener import Listener
from tests.nodes.conversation import LONG

Change = Callable[[bytes], bytes]
"""from what one side sent so far to what the other gets so far"""


def a_hello(**fields: Any) -> Greeting:
    said = {
        "protocol": frames.PROTOCOL,
        "holdfast": "0.0",
        "node": "by-hand",
        "run": "",
        "secret": True,
        "nonce": secrets.token_bytes(32),
        **fields,
    }
    return Greeting(**said)


def framed(message: Any, version: int = frames.PROTOCOL) -> bytes:
    body = message if isinstance(message, bytes) else msgspec.msgpack.encode(message)
    return frames.HEADER.pack(len(body), version) + body


def opening(side: Side = Side.MEMBER, version: int = frames.PROTOCOL, **fields: Any) -> bytes:
    return side.preamble + framed(a_hello(**fields), version)


class RawPeer:
    """A plain connection to a listener, or from a member."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        with contextlib.suppress(OSError):
            self.writer.write(data)
            await self.writer.drain()

    async def read_frame(self) -> bytes:
        async def read() -> bytes:
            length, _ = frames.HEADER.unpack(await self.reader.readexactly(5))
            return await self.reader.readexactly(length)

        return await asyncio.wait_for(read(), LONG)

    async def ended(self) -> bytes:
        """What else came until the other side closed the connection, which it must."""
        rest = b""
        with contextlib.suppress(ConnectionError):
            while more := await asyncio.wait_for(self.reader.read(65536), LONG):
                rest += more
        return rest


@contextlib.asynccontextmanager
async def connected(listener: Listener, source: str = "127.0.0.1") -> AsyncIterator[RawPeer]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", listener.port, local_addr=(source, 0)
    )
    try:
        yield RawPeer(reader, writer)
    finally:
        writer.transport.abort()


@contextlib.asynccontextmanager
async def fake_coordinator(
    script: Callable[[RawPeer], Any],
) -> AsyncIterator[Listener]:
    """Plays `script` to the first that connects."""
    done: list[asyncio.Task[Any]] = []

    async def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        done.append(asyncio.ensure_future(script(RawPeer(reader, writer))))
        try:
            await done[-1]
        finally:
            writer.transport.abort()

    server = await asyncio.start_server(arrived, "127.0.0.1", 0)
    try:
        yield Listener(server.sockets[0].getsockname()[1])
    finally:
        server.close()
        for task in done:
            task.cancel()
        await asyncio.gather(*done, return_exceptions=True)


class Tap:
    """Stands between a member and its coordinator: records, and changes what it is told to."""

    def __init__(self, port: int, *, up: Change, down: Change) -> None:
        self.port = port
        self.from_member = bytearray()
        self.from_coordinator = bytearray()
        self._changes = {id(self.from_member): up, id(self.from_coordinator): down}

    async def carry(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, record: bytearray
    ) -> None:
        change, sent = self._changes[id(record)], 0
        with contextlib.suppress(OSError):
            while more := await reader.read(65536):
                record += more
                changed = change(bytes(record))
                writer.write(changed[sent:])
                sent = max(sent, len(changed))
                await writer.drain()
        with contextlib.suppress(OSError, RuntimeError):
            writer.close()

    async def arrived(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        onward_reader, onward_writer = await asyncio.open_connection("127.0.0.1", self.port)
        try:
            await asyncio.gather(
                self.carry(reader, onward_writer, self.from_member),
                self.carry(onward_reader, writer, self.from_coordinator),
            )
        finally:
            onward_writer.transport.abort()
            writer.transport.abort()


@contextlib.asynccontextmanager
async def tapped(
    listener: Listener, *, up: Change = bytes, down: Change = bytes
) -> AsyncIterator[tuple[Listener, Tap]]:
    tap = Tap(listener.port, up=up, down=down)
    tasks: set[asyncio.Task[None]] = set()

    def arrived(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        tasks.add(asyncio.ensure_future(tap.arrived(reader, writer)))

    server = await asyncio.start_server(arrived, "127.0.0.1", 0)
    try:
        yield Listener(server.sockets[0].getsockname()[1]), tap
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
