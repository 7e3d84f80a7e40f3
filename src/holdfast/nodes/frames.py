"""How messages travel: a length, a version, the message, and a MAC once both sides have a key.

    4 bytes   length of the message, big-endian
    1 byte    version of the protocol
    N bytes   the message, msgpack
    16 bytes  HMAC-SHA256 of all before it, cut short; only on sealed channels

Pure: bytes in, bytes out. `framed_stream.py` has the sockets.
"""

from __future__ import annotations

import hashlib
import hmac
import struct
from typing import NamedTuple

PROTOCOL = 1
"""raise it when a node that runs the older code could misunderstand a message"""

HEADER = struct.Struct("!IB")
MAC_BYTES = 16

LARGEST_HELLO = 2048
"""bytes; before the token is proven nothing needs to be longer"""
LARGEST_MESSAGE = 64 << 20
"""bytes; what one node saw of 1,024 others with 16 addresses each is 13 MiB"""


class FrameHead(NamedTuple):
    length: int
    version: int


def head(raw: bytes) -> FrameHead:
    return FrameHead(*HEADER.unpack(raw))


def pack(message: bytes) -> bytes:
    return HEADER.pack(len(message), PROTOCOL) + message


class Seal:
    """MACs for one direction of a channel: a frame changed, repeated, dropped or sent back to
    its writer does not fit the key and the number that this frame has in its direction.
    """

    def __init__(self, key: bytes) -> None:
        self._key = key
        self._frames = 0

    def next_mac(self, frame: bytes) -> bytes:
        number = self._frames.to_bytes(8, "big")
        self._frames += 1
        return hmac.digest(self._key, number + frame, hashlib.sha256)[:MAC_BYTES]
