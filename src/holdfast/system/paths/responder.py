"""Answering UDP probes: each datagram that proves the key gets the list of all that came."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections import OrderedDict

from holdfast.system.paths import wire
from holdfast.system.sockets import family_of

SESSIONS = 4096
"""one per prober and measurement; the oldest is forgotten"""
AT_A_TIME = 64
"""datagrams before others of this process get their turn"""
ROOM = 4 << 20
"""asked for as receive buffer; the kernel grants up to rmem_max"""


class Responder:
    """A UDP socket on one address, read by the running event loop."""

    def __init__(self, address: str, port: int, *, node: str, key: bytes) -> None:
        self._node, self._key = node, key
        self._loop = asyncio.get_running_loop()
        self._sessions: OrderedDict[bytes, int] = OrderedDict()
        self._buffer = memoryview(bytearray(1 << 16))
        self._socket = socket.socket(family_of(address), socket.SOCK_DGRAM)
        try:
            self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, ROOM)
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
                length, sender = self._socket.recvfrom_into(self._buffer)
            except BlockingIOError:
                return
            except OSError:  # an ICMP answer to one of our answers: of no concern
                continue
            datagram = wire.read_datagram(self._key, self._node, self._buffer[:length])
            if datagram:
                answer = wire.Seen(datagram.session, datagram.number, self._note(datagram))
                with contextlib.suppress(OSError):  # lost, as if on the way
                    self._socket.sendto(wire.pack_seen(self._key, answer), sender)

    def _note(self, datagram: wire.Datagram) -> int:
        seen = self._sessions.get(datagram.session, 0)
        if datagram.number < wire.NUMBERS:
            seen |= 1 << datagram.number
        self._sessions[datagram.session] = seen
        if len(self._sessions) > SESSIONS:
            self._sessions.popitem(last=False)
        return seen
