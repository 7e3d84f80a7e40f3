"""Asking the kernel over netlink, for a list or one answer. Layouts: linux/netlink.h."""

from __future__ import annotations

import os
import socket
import struct
from collections.abc import Iterator

NLM_F_REQUEST, NLM_F_DUMP = 0x1, 0x300
NLMSG_ERROR, NLMSG_DONE = 2, 3

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
SECONDS = 1.0
"""the kernel answers at once, or never"""


def connect(protocol: int) -> socket.socket:
    link = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, protocol)
    link.settimeout(SECONDS)
    return link


def dump(link: socket.socket, kind: int, body: bytes, *, answer: int) -> Iterator[bytes]:
    """Every message of kind `answer`; raises OSError where the kernel will not tell."""
    _send(link, kind, NLM_F_REQUEST | NLM_F_DUMP, body)
    while True:
        for found, message in messages(link.recv(1 << 17)):
            if found == NLMSG_DONE:
                return
            if found == NLMSG_ERROR:
                raise _refusal(message)
            if found == answer:
                yield message


def ask(link: socket.socket, kind: int, body: bytes, *, answer: int) -> bytes:
    """The one message that answers; raises OSError where the kernel refuses."""
    _send(link, kind, NLM_F_REQUEST, body)
    while True:
        for found, message in messages(link.recv(1 << 17)):
            if found == NLMSG_ERROR:
                raise _refusal(message)
            if found == answer:
                return message


def _send(link: socket.socket, kind: int, flags: int, body: bytes) -> None:
    link.send(_HEADER.pack(_HEADER.size + len(body), kind, flags, 0, 0) + body)


def _refusal(message: bytes) -> OSError:
    number = -struct.unpack_from("=i", message)[0]
    return OSError(number, f"netlink: {os.strerror(number)}")


def messages(datagram: bytes) -> Iterator[tuple[int, bytes]]:
    """Take a netlink datagram apart; raises ValueError when its lengths do not fit."""
    at = 0
    while at + _HEADER.size <= len(datagram):
        length, kind, _, _, _ = _HEADER.unpack_from(datagram, at)
        if length < _HEADER.size or at + length > len(datagram):
            raise ValueError(f"netlink message of {length} bytes in {len(datagram) - at}")
        yield kind, datagram[at + _HEADER.size : at + length]
        at += -(-length // 4) * 4


def attribute(message: bytes, wanted: int, *, after: int) -> bytes:
    """The attribute of this kind behind a message's fixed part; b'' where it has none."""
    at = after
    while at + _ATTRIBUTE.size <= len(message):
        length, kind = _ATTRIBUTE.unpack_from(message, at)
        if kind == wanted:
            return message[at + _ATTRIBUTE.size : at + length]
        at += -(-max(length, _ATTRIBUTE.size) // 4) * 4
    return b""


def pack_attribute(kind: int, value: bytes) -> bytes:
    """For a request; values of addresses and numbers need no padding."""
    return _ATTRIBUTE.pack(_ATTRIBUTE.size + len(value), kind) + value
