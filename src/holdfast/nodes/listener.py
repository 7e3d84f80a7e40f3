"""Where members join: it lives as long as its `async with`, and wants the token of every peer."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import re
import socket
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
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
from holdfast.nodes.keepalive import notice_loss
from holdfast.nodes.pending import Pending
from holdfast.nodes.token import Token

HANDSHAKE_SECONDS = 5.0
MOST_PENDING = 256
BACKLOG = 128
MOST_NAMED = 64
SMALL_SEGMENT = 1100
"""bytes of a TCP segment: what we say must get through also where large packets vanish, since that
is one of the things we look for. It fits into the smallest MTU that IPv6 allows (1280)"""

_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL, socket.EAI_ADDRFAMILY, socket.EAI_FAMILY)

TURNED_AWAY = (WrongVersion, WrongToken, Refused)
"""nodes that said who they are, and hear why they cannot join"""

Serve = Callable[[Channel], Awaitable[None]]
"""runs for each member that was admitted; its channel is closed when it returns"""


Attend = Callable[[FramedStream], Awaitable[None]]


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
            _without_ports(problem) == _without_ports(known) for known in self.turned_away
        ):
            self.turned_away.append(problem)


def _without_ports(problem: ChannelError) -> str:
    """One that tries again comes from another port every time."""
    return re.sub(r":\d+(?=[ )])", "", problem.sentence)


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

    async def attend(stream: FramedStream) -> None:
        node = await door.greeted(stream)
        if node is not None:
            stream.largest = limit
            await serve(Channel(stream, understands=understands, node=node))

    for bound in sockets:
        door.open(bound, attend)
    try:
        yield listener
    finally:
        await door.close()
    door.raise_failure()


class _Door:
    """Not asyncio's own server: that one takes a hundred connections at a time without asking, and
    loses sight of those that arrive while it closes.
    """

    def __init__(self, listener: Listener, *, token: Token, me: Introduction, admit: Admit) -> None:
        self._listener = listener
        self._token = token
        self._me = me
        self._admit = admit
        self._loop = asyncio.get_running_loop()
        self._bound: list[socket.socket] = []
        self._pending: Pending[FramedStream] = Pending(MOST_PENDING)
        self._tasks: dict[asyncio.Task[None], socket.socket] = {}
        self._failure: BaseException | None = None

    def open(self, bound: socket.socket, attend: Attend) -> None:
        if bound not in self._bound:
            self._bound.append(bound)
        if bound.fileno() != -1:
            self._loop.add_reader(bound, self._accept_one, bound, attend)

    def _accept_one(self, bound: socket.socket, attend: Attend) -> None:
        """One at a time, so that a flood leaves the loop to the others."""
        try:
            connection, peer = bound.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        except OSError:  # no descriptors left: look again when some may be free
            self._loop.remove_reader(bound)
            self._loop.call_later(0.1, self.open, bound, attend)
            return
        task = asyncio.ensure_future(self._attended(connection, peer, attend))
        self._tasks[task] = connection
        task.add_done_callback(self._finished)

    async def _attended(
        self, connection: socket.socket, peer: tuple[Any, ...], attend: Attend
    ) -> None:
        connection.setblocking(False)
        reader, writer = await asyncio.open_connection(sock=connection)
        notice_loss(writer)
        stream = FramedStream(reader, writer, peer=endpoint(peer[0], peer[1]))
        if dropped := self._pending.add(stream, peer[0]):
            dropped.abort(ChannelClosed(dropped.peer, "was dropped: too many wait to be admitted"))
        try:
            await attend(stream)
        except ChannelError:
            pass  # `serve` had nothing to say about a peer that is gone
        finally:
            self._pending.done(stream)
            await stream.close()

    async def greeted(self, stream: FramedStream) -> str | None:
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
        self._tasks.pop(task).close()
        if not task.cancelled() and self._failure is None:
            self._failure = task.exception()

    async def close(self) -> None:
        for bound in self._bound:
            self._loop.remove_reader(bound)
            bound.close()
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
                same = sockets[0].getsockname()[1] if sockets else port
                with _without_ipv6(address, alone=not sockets):
                    sockets.append(_listen_at(address, same))
        except CannotListen:
            for bound in sockets:
                bound.close()
            if port or last_try:
                raise
        else:
            return sockets
    raise AssertionError("the last try returns or raises")


@contextlib.contextmanager
def _without_ipv6(address: str, *, alone: bool) -> Iterator[None]:
    """'::' beside another address is for nodes that come by IPv6: there are none where the kernel
    has none (`ipv6.disable=1`)."""
    try:
        yield
    except CannotListen as problem:
        if address != "::" or alone or problem.code not in _NO_IPV6:
            raise


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
        # Connections inherit it, and the peer is told: it holds in both directions.
        bound.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, SMALL_SEGMENT)
        if family == socket.AF_INET6:  # '::' is for IPv6; list '0.0.0.0' as well for both
            bound.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
        bound.bind(where)
        bound.listen(BACKLOG)
    except OSError as problem:
        bound.close()
        raise CannotListen(address, port, problem) from None
    bound.setblocking(False)
    return bound
