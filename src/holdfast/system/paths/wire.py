"""The bytes that probes exchange. Each proves the check's key; none carries a command.

TCP: the prober sends a hello and the bytes it announces; the listener answers with its node's
name and a proof over the hello, so that neither a replay nor another node can answer for it.
UDP: each datagram is answered with the numbers of all that came in its session, so that one
answer makes up for all that were lost on the way back. An answer is never larger than the
question: no third machine can be flooded by way of us.
"""

from __future__ import annotations

import hmac
import os
import struct
from typing import NamedTuple

PROOF = 16
NUMBERS = 64
"""a session numbers its datagrams from 0 to 63; the answer is a bit for each"""
ASK_SEEN = 255
"""the number of a datagram that counts for nothing and only wants the answer"""
LARGEST_MESSAGE = 4 << 20
LONGEST_NAME = 255

_HELLO = struct.Struct("!4s16sI")
_DATAGRAM = struct.Struct("!4s8sBH")
_SEEN = struct.Struct("!4s8sBQI")
_TCP, _NAME, _UDP, _ACK = b"hft1", b"hfn1", b"hfu1", b"hfa1"

HELLO_BYTES = _HELLO.size + PROOF
DATAGRAM_BYTES = _DATAGRAM.size + PROOF + 10
"""the smallest datagram: as large as the answer to it"""
SEEN_BYTES = _SEEN.size + PROOF


class ProbeHello(NamedTuple):
    """A prober's first bytes on a connection."""

    nonce: bytes
    length: int
    """bytes that follow it"""


class Datagram(NamedTuple):
    session: bytes
    number: int
    length: int
    """of the whole payload"""


class Seen(NamedTuple):
    """The answer to a datagram."""

    session: bytes
    number: int
    """of the datagram that is answered"""
    numbers: int
    """a bit for every number that came in this session"""
    overflowed: int
    """datagrams, of any prober, that were dropped meanwhile because the responder's own queue was
    full: no fault of the path"""


def pack_hello(key: bytes, length: int) -> tuple[ProbeHello, bytes]:
    hello = ProbeHello(os.urandom(16), length)
    head = _HELLO.pack(_TCP, hello.nonce, length)
    return hello, head + _proof(key, head)


def read_hello(key: bytes, packed: bytes) -> ProbeHello | None:
    """None for anything that does not prove the key."""
    if len(packed) != HELLO_BYTES or not _proven(key, packed):
        return None
    magic, nonce, length = _HELLO.unpack_from(packed)
    return ProbeHello(nonce, length) if magic == _TCP and length <= LARGEST_MESSAGE else None


def pack_name(key: bytes, hello: ProbeHello, node: str) -> bytes:
    """The listener's answer: its node's name, behind its length, and the proof."""
    name = node.encode()[:LONGEST_NAME]
    return bytes([len(name)]) + name + _proof(key, _NAME, hello.nonce, name)


def read_name(key: bytes, hello: ProbeHello, packed: bytes) -> str | None:
    """The name of the node that answered; None for what proves nothing."""
    name = packed[1:-PROOF]
    if packed != bytes([len(name) & 0xFF]) + name + packed[-PROOF:]:
        return None
    right = _proof(key, _NAME, hello.nonce, name)
    return name.decode(errors="replace") if hmac.compare_digest(packed[-PROOF:], right) else None


def pack_datagram(key: bytes, node: str, datagram: Datagram) -> bytes:
    """For the responder of this node only: another one keeps silent."""
    head = _DATAGRAM.pack(_UDP, datagram.session, datagram.number, datagram.length)
    return (head + _proof(key, _UDP, node.encode(), head)).ljust(datagram.length, b"\0")


def read_datagram(key: bytes, node: str, packed: memoryview) -> Datagram | None:
    """None for a stranger's, one for another node, or one that did not arrive whole."""
    if len(packed) < DATAGRAM_BYTES:
        return None
    head, proof = bytes(packed[: _DATAGRAM.size]), packed[_DATAGRAM.size :][:PROOF]
    magic, session, number, length = _DATAGRAM.unpack(head)
    right = _proof(key, _UDP, node.encode(), head)
    if magic != _UDP or length != len(packed) or not hmac.compare_digest(proof, right):
        return None
    return Datagram(session, number, length)


def pack_seen(key: bytes, seen: Seen) -> bytes:
    head = _SEEN.pack(_ACK, *seen)
    return head + _proof(key, head)


def read_seen(key: bytes, packed: bytes) -> Seen | None:
    if len(packed) != SEEN_BYTES or not _proven(key, packed):
        return None
    magic, *rest = _SEEN.unpack_from(packed)
    return Seen(*rest) if magic == _ACK else None


def _proven(key: bytes, packed: bytes) -> bool:
    return hmac.compare_digest(packed[-PROOF:], _proof(key, packed[:-PROOF]))


def _proof(key: bytes, *parts: bytes) -> bytes:
    """The first part names the kind of message, and only one varies in length: what is proven
    for one message proves no other."""
    return hmac.digest(key, b"".join(parts), "sha256")[:PROOF]
