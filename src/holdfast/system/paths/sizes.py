"""Which sizes get through to a target: whole packets one by one, and messages over TCP.

Packets may vanish by chance: one that is lost is sent again until chance, at the loss seen on
the same path, explains it no longer. So loss alone is never taken for a limit of size.
"""

from __future__ import annotations

import asyncio
import math
import socket
import struct
import time
from collections.abc import Sequence

from holdfast.analysis.nodes import PathSizes, RouteTo, SizeProbe, Target
from holdfast.system.paths import wire
from holdfast.system.paths.attempts import first_to_end
from holdfast.system.paths.connect import ConnectFailed, ProbeConnection
from holdfast.system.paths.datagrams import DatagramSession
from holdfast.system.paths.descriptors import room_for
from holdfast.system.paths.icmp import IcmpError
from holdfast.system.paths.routes import interface_mtu, routes
from holdfast.system.sockets import error_name

PACKETS = (
    # what tunnels and clouds leave of 1500 (VXLAN 1450, GCP 1460, GRE 1476, PPPoE 1492), what
    # InfiniBand has (2044, 4092), and the jumbo sizes of the clouds (8500, 8896, 9001)
    *(576, 1280, 1380, 1400, 1420, 1440, 1450, 1460, 1476, 1492, 1500),
    *(2044, 3000, 4092, 6000, 8000, 8500, 8896, 8950, 9000, 9001, 9216),
)
LARGEST_PACKET = 65535
MESSAGES = (1, 1 << 10, 1 << 14, 1 << 16, 1 << 18)
MESSAGE_SECONDS, MESSAGE_GAP = 2.5, 0.5
CHANCE = 1e-6
FEWEST_TRIES, MOST_TRIES = 6, 16
FIRST_WAIT, LONGEST_WAIT = 0.06, 0.3
"""seconds for answers, after the first try and at most; a busy machine answers late"""
AT_ONCE = 64
"""paths measured side by side, where the limit of open files allows"""


_TCP_INFO_BYTES, _RETRANSMITTED_AT, _ACKED_AT = 128, 100, 120
"""of struct tcp_info"""


async def sizes(source: str, targets: Sequence[Target], *, key: bytes) -> tuple[PathSizes, ...]:
    """One way, to each target; where there is no way at all, both ladders are empty."""
    connections = len(MESSAGES) * math.ceil(MESSAGE_SECONDS / MESSAGE_GAP)
    room = asyncio.Semaphore(room_for(1 + connections, most=AT_ONCE))

    async def one(way: RouteTo) -> PathSizes:
        async with room:
            return await _sizes(source, way, key)

    return tuple(await asyncio.gather(*map(one, routes(source, targets))))


def ladder(mtu: int) -> tuple[int, ...]:
    """The packet sizes to try from an interface of this MTU: larger ones could never leave."""
    return (*(size for size in PACKETS if size < mtu), min(mtu, LARGEST_PACKET))


def tries_needed(sent: int, arrived: int) -> int:
    """How often a packet must get lost before it is the size and not chance.

    `sent` and `arrived` of the sizes that do get through, on the same path at the same time. Where
    none does, no loss explains it: more tries would only cost time.
    """
    if not arrived:
        return FEWEST_TRIES
    lost = sent - arrived + 1
    loss = min(0.5, (lost + math.sqrt(lost)) / (sent + 2))  # rather too much: few were sent
    return min(MOST_TRIES, max(FEWEST_TRIES, math.ceil(math.log(CHANCE) / math.log(loss))))


async def _sizes(source: str, way: RouteTo, key: bytes) -> PathSizes:
    mtu = interface_mtu(way.interface)
    datagrams: tuple[SizeProbe, ...] = ()
    messages: tuple[SizeProbe, ...] = ()
    told: IcmpError | None = None
    if mtu and not way.error:
        (datagrams, told), messages = await asyncio.gather(
            _try_datagrams(way.target, key, ladder(mtu)), _try_messages(way.target, key)
        )
    return PathSizes(
        source=source,
        target=way.target,
        interface=way.interface,
        mtu=mtu,
        datagrams=datagrams,
        messages=messages,
        told_mtu=told.mtu if told else None,
        told_by=told.sender if told else "",
    )


async def _try_datagrams(
    target: Target, key: bytes, packets: Sequence[int]
) -> tuple[tuple[SizeProbe, ...], IcmpError | None]:
    try:
        session = DatagramSession(target, key)
    except OSError as problem:
        error = error_name(problem)
        return tuple(SizeProbe(bytes=size, arrived=False, error=error) for size in packets), None
    with session:
        tries = await _send_until_sure(session, packets)
    probes = (
        SizeProbe(
            bytes=size,
            arrived=session.arrived(number),
            error="" if session.arrived(number) else session.errors.get(number, ""),
            tries=tries[number],
        )
        for number, size in enumerate(packets)
    )
    return tuple(probes), session.too_big


async def _send_until_sure(session: DatagramSession, packets: Sequence[int]) -> list[int]:
    """How often each was sent. All sizes at once, then those again that are still missing."""
    tries = [0] * len(packets)

    def missing() -> list[int]:
        return [
            number
            for number in range(len(packets))
            if not session.arrived(number) and session.errors.get(number) != "EMSGSIZE"
        ]

    for turn in range(MOST_TRIES):
        here = [count for number, count in enumerate(tries) if session.arrived(number)]
        if not missing() or (turn and turn >= tries_needed(sum(here), len(here))):
            break
        # The largest first: should a queue overflow, what is lost looks like no limit of size.
        for number in reversed(missing()):
            session.send(number, packets[number])
            tries[number] += 1
        await session.wait(lambda: not missing(), min(FIRST_WAIT * (turn + 1), LONGEST_WAIT))
    return tries


async def _try_messages(target: Target, key: bytes) -> tuple[SizeProbe, ...]:
    tries = (_Message(target, key, size).probe() for size in MESSAGES)
    return tuple(await asyncio.gather(*tries))


class _Message:
    """One message over TCP. Where it stalls, a new connection tries beside the old one: after
    two losses in a row TCP waits so long that it would look like a black hole."""

    def __init__(self, target: Target, key: bytes, size: int) -> None:
        self._target, self._key, self._size = target, key, size
        self._connections: list[ProbeConnection] = []
        self._acknowledged = self._seen_before = -1
        self._retransmitted = 0

    async def probe(self) -> SizeProbe:
        end = time.monotonic() + MESSAGE_SECONDS
        errors = await first_to_end(
            self._attempt, gap=MESSAGE_GAP, until=lambda: end, another=self._stalls
        )
        error = min(errors, default="ETIMEDOUT")
        if self._acknowledged == self._size:
            error = ""  # the other kernel has it all; its process was too busy to say so
        return SizeProbe(
            bytes=self._size,
            arrived=not error,
            error=error,
            tries=max(1, len(self._connections)),
            acknowledged=self._acknowledged if self._acknowledged >= 0 else None,
            retransmitted=self._retransmitted,
        )

    async def _attempt(self) -> str:
        try:
            connection = ProbeConnection(self._target, self._key)
        except OSError as problem:
            if self._connections:
                await asyncio.Event().wait()  # the earlier ones go on
            return error_name(problem)
        self._connections.append(connection)
        with connection:
            try:
                await connection.connect()
                await connection.prove(self._size)
            except ConnectFailed as failure:
                return failure.error
            finally:
                self._note(connection.socket)
        return ""

    def _stalls(self) -> bool:
        """Did nothing more get acknowledged since we last asked?"""
        for connection in self._connections:
            self._note(connection.socket)
        before, self._seen_before = self._seen_before, self._acknowledged
        return self._acknowledged <= before

    def _note(self, link: socket.socket) -> None:
        info = link.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
        if len(info) == _TCP_INFO_BYTES:  # older kernels tell less
            acked: int = struct.unpack_from("=Q", info, _ACKED_AT)[0]
            # the SYN counts for one, and the hello goes ahead of the message
            payload = min(self._size, max(0, acked - 1 - wire.HELLO_BYTES))
            self._acknowledged = max(self._acknowledged, payload)
            sent_again: int = struct.unpack_from("=I", info, _RETRANSMITTED_AT)[0]
            self._retransmitted = max(self._retransmitted, sent_again)
