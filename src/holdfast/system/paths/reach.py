"""Which targets can be connected to from here, and what stands in the way of the others.

Loss must not look like a firewall. A SYN that is lost is sent again only after a second, so that
one connect at 30 % loss each way fails within 2.5 s in one case of eight. So while nothing comes
back another connect is started every `GAP`: with their own repeats about 14 SYNs, which all get
lost in one case of ten thousand, and a path without loss costs one connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.analysis.nodes import Outcome, Reached, RouteTo, Target
from holdfast.system.paths.attempts import first_to_end
from holdfast.system.paths.connect import ConnectFailed, ProbeConnection
from holdfast.system.paths.descriptors import room_for
from holdfast.system.paths.neighbours import silent_neighbours
from holdfast.system.paths.routes import routes
from holdfast.system.sockets import error_name

SECONDS = 2.5
"""for the connect"""
PROOF_SECONDS = 5.0
"""more, for the answer of what was connected to: its machine may be busy"""
GAP = 0.3
BUSY_GAP = 1.0
"""once connected: the other process may just be busy"""
CONNECTS = int(SECONDS / GAP) + 1


class _Answer(NamedTuple):
    outcome: Outcome
    error: str
    at: float
    local: str


async def reach(
    source: str, targets: Sequence[Target], *, key: bytes, seconds: float = SECONDS
) -> tuple[Reached, ...]:
    """Connect to all targets at once, as far as the limit of open files allows."""
    try:
        ways = {way.target: way for way in routes(source, targets)}
    except OSError:  # no netlink here: the connects tell enough
        ways = {}
    room = asyncio.Semaphore(room_for(CONNECTS, most=256))

    async def one(target: Target) -> Reached:
        async with room:
            return await _reach(source, target, ways.get(target), key=key, seconds=seconds)

    return tuple(await asyncio.gather(*map(one, targets)))


async def _reach(
    source: str, target: Target, way: RouteTo | None, *, key: bytes, seconds: float
) -> Reached:
    start = time.monotonic()
    answer = await _Connects(target, key, end=start + seconds).answer()
    if way and way.own_address and answer.outcome is not Outcome.OK:
        # (it is OK where two nodes share one machine)
        error = f"{source} itself has the address {target.address}"
        answer = answer._replace(outcome=Outcome.OWN_ADDRESS, error=error)
    if way and answer.outcome is Outcome.DROPPED:
        answer = _ask_neighbours(answer, way)
    return Reached(
        source=source,
        target=target,
        outcome=answer.outcome,
        error=answer.error,
        seconds=answer.at - start,
        local_address=answer.local,
    )


def _ask_neighbours(answer: _Answer, way: RouteTo) -> _Answer:
    """The kernel gives up on ARP only after our deadline, but it knows already."""
    hop = way.gateway or way.target.address
    with contextlib.suppress(OSError):
        if hop in silent_neighbours():
            error = f"{hop} does not answer ARP or neighbour discovery on {way.interface}"
            return answer._replace(outcome=Outcome.NO_NEIGHBOUR, error=error)
    return answer


class _Connects:
    """Several connects to one target; the first that ends decides."""

    def __init__(self, target: Target, key: bytes, *, end: float) -> None:
        self._target, self._key, self._end = target, key, end
        self._all: list[ProbeConnection] = []
        self._last_start = 0.0
        self._connected = False

    async def answer(self) -> _Answer:
        answers = await first_to_end(
            self._attempt, gap=GAP, until=self._until, another=self._wants_another
        )
        if answers:
            return min(answers, key=lambda one: one.outcome is not Outcome.OK)
        local = next((one.local for one in self._all), "")
        if self._connected:
            error = "connected, but no answer came"
            return _Answer(Outcome.FAILED, error, time.monotonic(), local)
        return _Answer(Outcome.DROPPED, "ETIMEDOUT: nothing came back", time.monotonic(), local)

    def _until(self) -> float:
        # The kernel is asked: on a busy machine our own attempts may not know yet.
        self._connected = any(one.connected for one in self._all)
        return self._end + (PROOF_SECONDS if self._connected else 0)

    def _wants_another(self) -> bool:
        now = time.monotonic()
        return now < self._end and now - self._last_start >= (BUSY_GAP if self._connected else 0)

    async def _attempt(self) -> _Answer:
        self._last_start = time.monotonic()
        try:
            connection = ProbeConnection(self._target, self._key)
        except OSError as problem:  # out of descriptors: it says nothing of the path
            if self._all:
                await asyncio.Event().wait()  # the earlier ones go on
            return _Answer(Outcome.FAILED, error_name(problem), time.monotonic(), "")
        self._all.append(connection)
        with connection:
            connected_at = None
            try:
                await connection.connect()
                connected_at = time.monotonic()
                await connection.prove()
            except ConnectFailed as failure:
                said = (failure.outcome, failure.error)
            else:
                said = (Outcome.OK, "")
        return _Answer(*said, connected_at or time.monotonic(), connection.local)
