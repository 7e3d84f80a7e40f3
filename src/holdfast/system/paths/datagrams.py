"""Datagrams to a target, whole or not at all, and what came back of each."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import socket
import time
from collections.abc import Callable

from holdfast.analysis.nodes import Target
from holdfast.system.paths import wire
from holdfast.system.paths.icmp import IcmpError, next_icmp_error, want_icmp_errors
from holdfast.system.sockets import error_name, family_of

# Python before 3.14 has no names for these numbers of linux/in.h and linux/in6.h.
IP_MTU_DISCOVER, IPV6_MTU_DISCOVER, IPV6_DONTFRAG = 10, 23, 62
PMTUDISC_PROBE = 3
"""'do not fragment', and never mind what the kernel believes of the path"""
UDP_HEADER, IP_HEADER = 8, {socket.AF_INET: 20, socket.AF_INET6: 40}
_NUMBER_AT = 12
"""where the number stands in a datagram of ours that an ICMP message quotes"""


class DatagramSession:
    """One measurement of the way to one target; raises OSError where there is no way at all."""

    def __init__(self, target: Target, key: bytes) -> None:
        self._target, self._key = target, key
        self._id = os.urandom(8)
        self._sent: dict[int, float] = {}
        self._news = asyncio.Event()
        self._loop = asyncio.get_running_loop()
        self.seen = 0
        """a bit for each number that arrived, as the target told"""
        self.overflowed = 0
        """datagrams that the target's own queue dropped meanwhile"""
        self.round_trips: dict[int, float] = {}
        """seconds to the first answer, by number"""
        self.errors: dict[int, str] = {}
        """errno's name, by number"""
        self.too_big: IcmpError | None = None
        """the message of the router with the smallest MTU"""
        family = family_of(target.address)
        self.headers = UDP_HEADER + IP_HEADER[family]
        self._socket = socket.socket(family, socket.SOCK_DGRAM)
        try:
            self._prepare(family)
        except BaseException:
            self._socket.close()
            raise
        self._loop.add_reader(self._socket, self._read)

    def _prepare(self, family: socket.AddressFamily) -> None:
        self._socket.setblocking(False)
        if family == socket.AF_INET6:
            self._socket.setsockopt(socket.IPPROTO_IPV6, IPV6_MTU_DISCOVER, PMTUDISC_PROBE)
            self._socket.setsockopt(socket.IPPROTO_IPV6, IPV6_DONTFRAG, 1)
        else:
            self._socket.setsockopt(socket.IPPROTO_IP, IP_MTU_DISCOVER, PMTUDISC_PROBE)
        want_icmp_errors(self._socket)
        self._socket.connect((self._target.address, self._target.port))

    def __enter__(self) -> DatagramSession:
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.remove_reader(self._socket)
        self._socket.close()

    def send(self, number: int, packet: int = 0) -> None:
        """`packet`: the size of the whole IP packet; by default the smallest."""
        length = max(packet - self.headers, wire.DATAGRAM_BYTES)
        datagram = wire.Datagram(self._id, number, length)
        packed = wire.pack_datagram(self._key, self._target.node, datagram)
        for _ in range(3):
            self._sent.setdefault(number, time.monotonic())
            try:
                self._socket.send(packed)
            except BlockingIOError:
                return  # our own queue is full: lost, as if on the way
            except OSError as problem:
                # The kernel hands over what an earlier packet met before it takes a new one.
                if not self._take_errors() or problem.errno == errno.EMSGSIZE:
                    self.errors[number] = error_name(problem)
                    return
            else:
                return

    async def wait(self, done: Callable[[], bool], seconds: float) -> bool:
        """Until `done`, or the time is up."""
        end = self._loop.time() + seconds
        while not done():
            self._news.clear()
            left = end - self._loop.time()
            if left <= 0:
                return False
            with contextlib.suppress(asyncio.TimeoutError, TimeoutError):
                await asyncio.wait_for(self._news.wait(), left)
        return True

    def arrived(self, number: int) -> bool:
        return bool(self.seen >> number & 1)

    def _read(self) -> None:
        now = time.monotonic()
        while True:
            try:
                packed = self._socket.recv(2048)
            except BlockingIOError:
                break
            except OSError:
                self._take_errors()
                continue
            seen = wire.read_seen(self._key, packed)
            if seen and seen.session == self._id:
                self.seen |= seen.numbers
                self.overflowed = max(self.overflowed, seen.overflowed)
                if seen.number in self._sent:
                    self.round_trips.setdefault(seen.number, now - self._sent[seen.number])
        self._take_errors()
        self._news.set()

    def _take_errors(self) -> bool:
        taken = False
        while error := next_icmp_error(self._socket):
            taken = True
            if error.mtu and (self.too_big is None or error.mtu < self.too_big.mtu):
                self.too_big = error
            if len(error.payload) > _NUMBER_AT:
                name = errno.errorcode.get(error.number, str(error.number))
                self.errors[error.payload[_NUMBER_AT]] = name
        return taken
