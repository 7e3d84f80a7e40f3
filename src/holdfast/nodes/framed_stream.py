"""Frames over one pair of asyncio streams: limits on size and time, and an end that is final."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import os
import socket
from collections.abc import Coroutine
from typing import Any, TypeVar

from holdfast.nodes import frames
from holdfast.nodes.channel_errors import (
    BadMessage,
    ChannelClosed,
    ChannelError,
    ChannelTimeout,
    NotHoldfast,
    WrongVersion,
)
from holdfast.text import printable, shorten, size

T = TypeVar("T")

CLOSING_SECONDS = 2.0
"""for what is still in our buffers when a channel is closed"""


class FramedStream:
    """One reader and many writers at a time; the first failure ends it for good."""

    def __init__(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, peer: str
    ) -> None:
        self.peer = peer
        self.largest = frames.LARGEST_HELLO
        self._reader = reader
        self._writer = writer
        self._seal_in: frames.Seal | None = None
        self._seal_out: frames.Seal | None = None
        self._head: bytes | None = None
        self._ended: ChannelError | None = None
        self._one_writer = asyncio.Lock()

    def seal(self, *, incoming: frames.Seal, outgoing: frames.Seal) -> None:
        """From here on every frame carries a MAC."""
        self._seal_in, self._seal_out = incoming, outgoing

    def end(self, which: str) -> tuple[str, int]:
        """Of a TCP connection: 'sockname' or 'peername'; asyncio keeps both for us."""
        found = self._writer.get_extra_info(which)
        return (str(found[0]), int(found[1])) if found else ("", 0)

    async def read(self, *, seconds: float | None, any_version: bool = False) -> bytes:
        """The next message. After `ChannelTimeout` it may be tried again: nothing is lost."""
        if self._ended:
            raise self._ended
        try:
            coming = self._next_message(any_version=any_version)
            return await (coming if seconds is None else within(seconds, coming))
        except asyncio.TimeoutError:
            raise ChannelTimeout(f"{self.peer} sent nothing within {seconds:g} s") from None
        except (BadMessage, ChannelClosed, WrongVersion) as problem:
            self.abort(problem)
            raise

    async def _next_message(self, *, any_version: bool) -> bytes:
        if self._head is None:
            self._head = await self._exactly(frames.HEADER.size)
        head = frames.head(self._head)
        if head.length > self.largest:
            raise BadMessage(
                self.peer,
                f"announced a message of {size(head.length)}; at most {size(self.largest)} "
                "are accepted",
            )
        if head.version != frames.PROTOCOL and not any_version:
            raise WrongVersion(
                self.peer, theirs=head.version, ours=frames.PROTOCOL, their_release=""
            )
        sealed = frames.MAC_BYTES if self._seal_in else 0
        body = await self._exactly(head.length + sealed)
        message, mac = body[: head.length], body[head.length :]
        if self._seal_in and not hmac.compare_digest(
            mac, self._seal_in.next_mac(self._head + message)
        ):
            raise BadMessage(self.peer, "sent a message that was changed on its way")
        self._head = None
        return message

    async def _exactly(self, count: int) -> bytes:
        try:
            return await self._reader.readexactly(count)
        except asyncio.IncompleteReadError as rest:
            inside = self._head is not None or rest.partial
            where = " in the middle of a message" if inside else ""
            raise ChannelClosed(self.peer, f"closed the connection{where}") from None
        except OSError as problem:
            raise ChannelClosed(self.peer, f"is gone: {words(problem)}") from None

    async def read_preamble(self, expected: bytes) -> None:
        """Its first bytes, before any frame; anything else is not holdfast."""
        got = b""
        while len(got) < len(expected):
            try:
                more = await self._reader.read(len(expected) - len(got))
            except OSError as problem:
                raise ChannelClosed(self.peer, f"is gone: {words(problem)}") from None
            got += more
            if not expected.startswith(got):
                with contextlib.suppress(asyncio.TimeoutError, OSError):
                    got += await asyncio.wait_for(self._reader.read(200), 0.1)
                raise NotHoldfast(self.peer, "does not speak holdfast's protocol", said=quoted(got))
            if not more:
                raise ChannelClosed(self.peer, "closed the connection before it said anything")

    async def skip_to_preamble(self, expected: bytes, *, largest: int, noise: bytearray) -> None:
        """Login banners and echoes from .bashrc come first on ssh; they are kept in `noise`."""
        while True:
            try:
                found = await self._reader.readuntil(expected)
            except asyncio.LimitOverrunError as overrun:
                noise += await self._reader.readexactly(overrun.consumed)
            except asyncio.IncompleteReadError as end:
                noise += end.partial
                raise ChannelClosed(self.peer, "ended before holdfast answered") from None
            except OSError as problem:
                raise ChannelClosed(self.peer, f"is gone: {words(problem)}") from None
            else:
                noise += found[: -len(expected)]
                return
            if len(noise) > largest:
                raise NotHoldfast(self.peer, f"sent {size(len(noise))} and no word of holdfast")

    async def unread_rest(self) -> bytes:
        """What has arrived and was not read yet."""
        with contextlib.suppress(asyncio.TimeoutError, OSError):
            return await asyncio.wait_for(self._reader.read(1 << 16), 0.05)
        return b""

    async def write(self, message: bytes, *, seconds: float, preamble: bytes = b"") -> None:
        """A peer that does not read ends the connection: part of a frame may be on its way."""
        if len(message) > self.largest:
            raise ChannelError(
                f"a message of {size(len(message))} to {self.peer} is over the limit of "
                f"{size(self.largest)}"
            )
        if self._ended:
            raise self._ended
        frame = frames.pack(message)
        if self._seal_out:
            frame += self._seal_out.next_mac(frame)
        self._writer.write(preamble + frame)
        try:
            await self._drained(seconds)
        except asyncio.TimeoutError:
            why = f"did not read what was sent to it for {seconds:g} s"
            self.abort(ChannelTimeout(f"{self.peer} {why}"))
        except OSError as problem:
            self.abort(ChannelClosed(self.peer, f"is gone: {words(problem)}"))
        if self._ended:
            raise self._ended

    async def _drained(self, seconds: float) -> None:
        transport = self._writer.transport
        if transport.get_write_buffer_size() or transport.is_closing():

            async def drained() -> None:
                async with self._one_writer:  # Python 3.10 allows one to wait
                    await self._writer.drain()

            await within(seconds, drained())

    def abort(self, why: ChannelError | None = None) -> None:
        """Ends the connection at once; what was not sent yet is dropped."""
        self._ended = self._ended or why or ChannelClosed(self.peer, "was hung up on by this node")
        self._cut()

    def _cut(self) -> None:
        with contextlib.suppress(AttributeError):  # asyncio's pipes, when they are closed already
            self._writer.transport.abort()

    async def close(self) -> None:
        """Ends the connection once the peer has what we sent, or after a moment."""
        if self._ended is None:
            self._ended = ChannelClosed(self.peer, "was hung up on by this node")
            self._writer.close()
        try:
            await asyncio.wait_for(self._writer.wait_closed(), CLOSING_SECONDS)
        except (asyncio.TimeoutError, OSError):
            self._cut()


async def within(seconds: float, what: Coroutine[Any, Any, T]) -> T:
    """As asyncio.wait_for, which before Python 3.12 forgets that it was cancelled when what it
    waits for is done at that moment: a task that reads would then read on for ever."""
    task = asyncio.ensure_future(what)
    task.add_done_callback(_noted)
    try:
        await asyncio.wait({task}, timeout=seconds)
    finally:
        if not task.done():
            task.cancel()
    if not task.done():
        await asyncio.wait({task})
    if task.cancelled():
        raise asyncio.TimeoutError
    return task.result()


def _noted(task: asyncio.Task[Any]) -> None:
    """Its problem, also when the task that waited for it was cancelled: asyncio would complain."""
    if not task.cancelled():
        task.exception()


def words(problem: OSError) -> str:
    """The kernel's own words: asyncio puts others in their place."""
    if problem.errno and not isinstance(problem, socket.gaierror):
        return os.strerror(problem.errno)
    return problem.strerror or str(problem) or type(problem).__name__


def quoted(raw: bytes, *, longest: int = 200) -> str:
    """Bytes of a stranger as text for a screen: no control characters, not too long."""
    text = "".join(c if c.isprintable() else " " for c in raw.decode(errors="replace"))
    return shorten(" ".join(printable(text).split()), longest)
