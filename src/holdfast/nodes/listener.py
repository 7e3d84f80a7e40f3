"""Where members join: it lives as long as its `async with`, and wants the token of every peer."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from typing import Any

from holdfast.nodes import frames
from holdfast.nodes.channel import Channel
from holdfast.nodes.channel_errors import (
    CannotListen,
    ChannelClosed,
    ChannelError,
    Refused,
    WrongToken,
    WrongVersion,
    endpoint,
)
from holdfast.nodes.framed_stream import FramedStream
from holdfast.nodes.handshake import Admit, Introduction, greet_member
from holdfast.nodes.pending import Pending
from holdfast.nodes.token import Token

HANDSHAKE_SECONDS = 5.0
MOST_PENDING = 256
BACKLOG = 128
MOST_NAMED = 64

TURNED_AWAY = (WrongVersion, WrongToken, Refused)
"""nodes that said who they are, and hear why they cannot join"""

Serve = Callable[[Channel], Awaitable[None]]
"""runs for each member that was admitted; its channel is closed when it returns"""


class Listener:
    """What came to the door so far.

    Attributes:
        port: the same on all addresses.
        turned_away: members of another version or run, and those that `admit` refused, in order.
        strangers: how many connections ended before they said who they are.
    """

    def __init__(self, port: int) -> None:
        self.port = port
        self.turned_away: list[ChannelError] = []
        self.strangers = 0

    def note(self, problem: ChannelError) -> None:
        if not isinstance(problem, TURNED_AWAY):
            self.strangers += 1
        elif len(self.turned_away) < MOST_NAMED and not any(
            problem.sentence == known.sentence for known in self.turned_away
        ):
            self.turned_away.append(problem)


@contextlib.asynccontextmanager
async def listening(
    addresses: Sequence[str],
    port: int,
    *,
    token: Token,
    understands: Any,
    serve: Serve,
    me: Introduction,
    admit: Admit = lambda _: "",
    limit: int = frames.LARGEST_MESSAGE,
) -> AsyncIterator[Listener]:
    """Listens at these addresses only, on one port (0: the kernel chooses).

    `limit` is the largest message in bytes. An exception of `serve` that is no `ChannelError`
    comes out of the `async with`. At its end all connections are closed.
    """
    sockets = _bound(addresses, port)
    listener = Listener(sockets[0].getsockname()[1])
    door = _Door(listener, token=token, me=me, admit=admit)

    def at_the_door(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        door.arrived(reader, writer, understands=understands, serve=serve, limit=limit)

    servers = [
        await asyncio.start_server(at_the_door, sock=bound, backlog=BACKLOG) for bound in sockets
    ]
    try:
        yield listener
    finally:
        for server in servers:
            server.close()
        await door.close()
    door.raise_failure()


class _Door:
    def __init__(self, listener: Listener, *, token: Token, me: Introduction, admit: Admit) -> None:
        self._listener = listener
        self._token = token
        self._me = me
        self._admit = admit
        self._pending: Pending[FramedStream] = Pending(MOST_PENDING)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None

    def arrived(
        self,
        reader: asyncio.StreamReader,
        writer: asyncio.StreamWriter,
        *,
        understands: Any,
        serve: Serve,
        limit: int,
    ) -> None:
        peer = writer.get_extra_info("peername") or ("unknown", 0)
        stream = FramedStream(reader, writer, peer=endpoint(peer[0], peer[1]))
        if dropped := self._pending.add(stream, peer[0]):
            dropped.abort(ChannelClosed(dropped.peer, "was dropped: too many wait to be admitted"))

        async def attend() -> None:
            try:
                if node := await self._greeted(stream):
                    stream.largest = limit
                    await serve(Channel(stream, understands=understands, node=node))
            except ChannelError:
                pass  # its `serve` had nothing to say about a peer that is gone
            finally:
                await stream.close()

        task = asyncio.ensure_future(attend())
        self._tasks.add(task)
        task.add_done_callback(self._finished)

    async def _greeted(self, stream: FramedStream) -> str | None:
        """The member's name, '' included; None when it was turned away."""
        try:
            theirs = await greet_member(
                stream,
                self._me,
                token=self._token,
                admit=self._admit,
                seconds=HANDSHAKE_SECONDS,
            )
        except ChannelError as problem:
            self._listener.note(problem)
            if not isinstance(problem, TURNED_AWAY):
                stream.abort(problem)
            return None
        finally:
            self._pending.done(stream)
        return theirs.node

    def _finished(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def raise_failure(self) -> None:
        if self._failure:
            raise self._failure


def _bound(addresses: Sequence[str], port: int) -> list[socket.socket]:
    """One socket for each address, all on one port; a port the kernel chose may be taken at the
    next address, then another is tried.
    """
    for last_try in (*[False] * 9, True):
        sockets: list[socket.socket] = []
        try:
            for address in addresses:
                sockets.append(
                    _listen_at(address, sockets[0].getsockname()[1] if sockets else port)
                )
        except CannotListen:
            for bound in sockets:
                bound.close()
            if port or last_try:
                raise
        else:
            return sockets
    raise AssertionError("the last try returns or raises")


def _listen_at(address: str, port: int) -> socket.socket:
    try:
        family, _, _, _, where = socket.getaddrinfo(
            address, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
        )[0]
        bound = socket.socket(family, socket.SOCK_STREAM)
    except OSError as problem:
        raise CannotListen(address, port, problem) from None
    try:
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if family == socket.AF_INET6:  # '::' is for IPv6; list '0.0.0.0' as well for both
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(where)
        bound.listen(BACKLOG)
    except OSError as problem:
        bound.close()
        raise CannotListen(address, port, problem) from None
    bound.setblocking(False)
    return bound
