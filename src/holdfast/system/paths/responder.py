"""Answering UDP probes: each datagram that proves the key gets the list of all that came."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections import OrderedDict
from typing import NamedTuple

from holdfast.system.paths import wire
from holdfast.system.sockets import family_of

SESSIONS = 4096
"""one per prober and measurement; the oldest is forgotten"""
AT_A_TIME = 64
"""datagrams before others of this process get their turn"""
ROOM = 4 << 20
"""asked for as receive buffer; the kernel grants up to rmem_max"""
SO_RXQ_OVFL = 40
"""no name for it in Python"""


class _Session(NamedTuple):
    numbers: int
    overflowed: int
    """the kernel's count before this session began"""


class Responder:
    """A UDP socket on one address, read by the running event loop."""

    def __init__(self, address: str, port: int, *, node: str, key: bytes) -> None:
        self._node, self._key = node, key
        self._loop = asyncio.get_running_loop()
        self._sessions: OrderedDict[bytes, _Session] = OrderedDict()
        self._overflowed = 0
        self._buffer = memoryview(bytearray(1 << 16))
        self._socket = socket.socket(family_of(address), socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
            self._socket.setsockopt(socket.SOL_SOCKET, SO_RXQ_OVFL, 1)
            self._socket.setblocking(False)
            self._socket.bind((address, port))
        except BaseException:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._read)

    def __enter__(self) -> Responder:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def _read(self) -> None:
        for _ in range(AT_A_TIME):
            try:
                length, ancillary, _, sender = self._socket.recvmsg_into([self._buffer], 64)
            except BlockingIOError:
                return
            except OSError:  # an ICMP answer to one of our answers: of no concern
                continue
            overflowed = _overflowed(ancillary, self._overflowed)
            datagram = wire.read_datagram(self._key, self._node, self._buffer[:length])
            if datagram:
                answer = self._note(datagram, overflowed)
                with contextlib.suppress(OSError):  # lost, as if on the way
                    self._socket.sendto(wire.pack_seen(self._key, answer), sender)
            self._overflowed = overflowed

    def _note(self, datagram: wire.Datagram, overflowed: int) -> wire.Seen:
        first = _Session(0, self._overflowed)
        session = self._sessions.get(datagram.session, first)
        if datagram.number < wire.NUMBERS:
            session = session._replace(numbers=session.numbers | 1 << datagram.number)
        self._sessions[datagram.session] = session
        if len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        meanwhile = overflowed - session.overflowed & 0xFFFFFFFF
        return wire.Seen(datagram.session, datagram.number, session.numbers, meanwhile)


def _overflowed(ancillary: list[tuple[int, int, bytes]], before: int) -> int:
    """The kernel's count of what this socket had no room for; it is told once there is any."""
    for level, kind, data in ancillary:
        if (level, kind) == (socket.SOL_SOCKET, SO_RXQ_OVFL):
            return int.from_bytes(data, sys.byteorder)
    return before
