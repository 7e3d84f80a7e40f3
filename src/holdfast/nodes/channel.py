"""Typed messages both ways between two nodes, over one pair of asyncio streams.

A channel comes from `listener.listening`, `join.join` or `pipes.channel_over`; it knows no verb.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.nodes.channel_errors import BadMessage
from holdfast.nodes.framed_stream import FramedStream
from holdfast.text import printable, shorten

SENDING_SECONDS = 10.0


class Channel:
    """One peer. One task at a time may receive; any number may send.

    Attributes:
        peer: words for messages: '10.0.0.7:41234' or 'ssh node-b'.
        node: the peer's own name, as it said.
        noise: what came before holdfast's first byte (banners on ssh), made printable.
    """

    def __init__(
        self, stream: FramedStream, *, understands: Any, node: str = "", noise: str = ""
    ) -> None:
        self.peer = stream.peer
        self.node = node
        self.noise = noise
        self._stream = stream
        self._encoder = msgspec.msgpack.Encoder()
        self._decoder = msgspec.msgpack.Decoder(understands)

    @property
    def own_end(self) -> tuple[str, int]:
        """Address and port of this side of a TCP connection."""
        return self._stream.end("sockname")

    @property
    def peer_end(self) -> tuple[str, int]:
        return self._stream.end("peername")

    async def send(self, message: msgspec.Struct, *, seconds: float = SENDING_SECONDS) -> None:
        """A peer that does not read for `seconds` raises `ChannelTimeout` and ends the channel."""
        await self._stream.write(self._encoded(message), seconds=seconds)

    def _encoded(self, message: msgspec.Struct) -> bytes:
        try:
            return self._encoder.encode(message)
        except UnicodeEncodeError:  # a path or a name in it is not text
            return self._encoder.encode(printable(msgspec.to_builtins(message)))

    async def receive(self, *, seconds: float | None) -> Any:
        """The next message, one of the types in `understands`; None waits until the peer is gone.

        `ChannelTimeout` leaves the channel whole: receive again. Anything else that is not one of
        those types raises `BadMessage` and ends the channel.
        """
        raw = await self._stream.read(seconds=seconds)
        try:
            return self._decoder.decode(raw)
        # UnicodeDecodeError is a ValueError; a message nested a thousand deep is a RecursionError
        except (msgspec.DecodeError, ValueError, RecursionError) as problem:
            why = shorten(str(problem), 200)
            bad = BadMessage(self.peer, f"sent a message that this node does not understand: {why}")
            self._stream.abort(bad)
            raise bad from None

    async def close(self) -> None:
        await self._stream.close()
