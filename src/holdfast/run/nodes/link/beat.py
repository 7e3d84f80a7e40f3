"""Signs of life as datagrams: 40 bytes each way, five a second.

TCP goes on after a cut when its next try is due, which may be seconds after the network is back; a
datagram gets through at once. Where datagrams are blocked, TCP alone has to do.

    8 bytes   which stream this belongs to (the beginning of its id)
    8 bytes   number, rising: an older one, or one sent again, is ignored
    8 bytes   the highest number heard from the other side
    16 bytes  HMAC by the token, the stream and the direction

Pure: bytes in, numbers out. There is no answer to a datagram that does not fit.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

from holdfast.nodes.handshake import Side
from holdfast.nodes.token import Token

_HEAD = struct.Struct("!8sQQ")
_MAC = 16
SIZE = _HEAD.size + _MAC
NAME = 8
"""bytes of a stream's id that a datagram begins with"""


class LinkBeat(NamedTuple):
    number: int
    confirmed: int


class BeatKey:
    """Of one stream and one direction."""

    def __init__(self, token: Token, stream: bytes, sender: Side) -> None:
        said = b"holdfast beat of " + sender.value.encode() + b"\0" + stream
        self._key = hmac.digest(token.secret, said, "sha256")
        self._name = stream[:NAME]
        self._newest = 0

    def pack(self, number: int, confirmed: int) -> bytes:
        head = _HEAD.pack(self._name, number, confirmed)
        return head + self._mac(head)

    def open(self, raw: bytes) -> LinkBeat | None:
        """None for what is not of this stream and direction, or not newer than all before."""
        if len(raw) != SIZE or not hmac.compare_digest(raw[-_MAC:], self._mac(raw[:-_MAC])):
            return None
        _, number, confirmed = _HEAD.unpack_from(raw)
        if number <= self._newest:
            return None
        self._newest = number
        return LinkBeat(number, confirmed)

    def _mac(self, head: bytes) -> bytes:
        return hmac.digest(self._key, head, hashlib.sha256)[:_MAC]


def stream_name(raw: bytes) -> bytes:
    return raw[:NAME] if len(raw) == SIZE else b""
