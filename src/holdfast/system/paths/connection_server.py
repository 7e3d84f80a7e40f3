"""Answering TCP probes: prove who we are, take the bytes that were announced, forget them."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import functools
import socket
import time
from typing import NamedTuple

from holdfast.system.paths import wire
from holdfast.system.paths.descriptors import room_for

SECONDS = 20.0
"""the longest that one connection may last"""
HELLO_SECONDS = 10.0
"""to be hung up on looks like a stranger, so a prober on a busy machine gets time"""
YOUNG = 3.0
"""seconds; an older connection that has proven nothing yields to new ones when room is short"""
_GONE = (errno.ECONNABORTED, errno.EPROTO, errno.EINTR)


class _Connection(NamedTuple):
    task: asyncio.Task[None]
    since: float


class ConnectionServer:
    """Serves any number of listeners with a bounded number of connections."""

    def __init__(self, node: str, key: bytes) -> None:
        self._node, self._key = node, key
        self._loop = asyncio.get_running_loop()
        self._listeners: list[socket.socket] = []
        self._unproven: dict[socket.socket, _Connection] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._room = room_for(2, most=512)
        self._paused = False

    async def __aenter__(self) -> ConnectionServer:
        return self

    async def __aexit__(self, *_: object) -> None:
        for listener in self._listeners:
            self._loop.remove_reader(listener)
            listener.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    def add(self, listener: socket.socket) -> None:
        self._listeners.append(listener)
        if not self._paused:
            self._loop.add_reader(listener, self._accept, listener)

    def _accept(self, listener: socket.socket) -> None:
        while self._has_room():
            try:
                connection, _ = listener.accept()
            except BlockingIOError:
                return
            except OSError as problem:
                if problem.errno in _GONE:
                    continue
                break  # out of descriptors or memory: those waiting stay in the backlog
            connection.setblocking(False)
            task = self._loop.create_task(self._serve(connection))
            self._unproven[connection] = _Connection(task, time.monotonic())
            self._tasks.add(task)
            task.add_done_callback(functools.partial(self._forget, connection))
        self._pause()

    def _forget(self, connection: socket.socket, task: asyncio.Task[None]) -> None:
        """Here and not in the task: one that is cancelled before its first step never runs."""
        connection.close()
        self._unproven.pop(connection, None)
        self._tasks.discard(task)

    def _has_room(self) -> bool:
        if len(self._tasks) < self._room:
            return True
        now = time.monotonic()
        for connection in self._unproven.values():
            if now - connection.since > YOUNG:
                connection.task.cancel()
        return False

    def _pause(self) -> None:
        if not self._paused:
            self._paused = True
            for listener in self._listeners:
                self._loop.remove_reader(listener)
            self._loop.call_later(0.05, self._resume)

    def _resume(self) -> None:
        self._paused = False
        for listener in self._listeners:
            if listener.fileno() >= 0:
                self._loop.add_reader(listener, self._accept, listener)

    async def _serve(self, connection: socket.socket) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.TimeoutError):
            await asyncio.wait_for(self._answer(connection), SECONDS)

    async def _answer(self, connection: socket.socket) -> None:
        packed = await asyncio.wait_for(
            _exactly(self._loop, connection, wire.HELLO_BYTES), HELLO_SECONDS
        )
        hello = wire.read_hello(self._key, packed)
        if hello is None:
            return
        self._unproven.pop(connection, None)
        await _discard(self._loop, connection, hello.length)
        await self._loop.sock_sendall(connection, wire.pack_name(self._key, hello, self._node))
        # The prober hangs up first, so that no TIME_WAIT is left on the port of the store.
        await self._loop.sock_recv(connection, 1)


async def _exactly(loop: asyncio.AbstractEventLoop, link: socket.socket, count: int) -> bytes:
    """Fewer bytes when the other side hangs up."""
    taken = b""
    while len(taken) < count and (more := await loop.sock_recv(link, count - len(taken))):
        taken += more
    return taken


async def _discard(loop: asyncio.AbstractEventLoop, link: socket.socket, count: int) -> None:
    buffer = bytearray(min(count, 1 << 18))
    while count > 0:
        taken = await loop.sock_recv_into(link, memoryview(buffer)[: min(count, len(buffer))])
        if not taken:
            raise ConnectionError("hung up in the middle of a message")
        count -= taken
