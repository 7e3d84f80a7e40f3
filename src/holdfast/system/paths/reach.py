"""Which targets can be connected to from here, and what stands in the way of the others.

Loss must not look like a firewall. A SYN that is lost is sent again only after a second, so that
one connect at 30 % loss each way fails within 2.5 s in one case of eight. So while nothing comes
back another connect is started every `GAP`: with their own repeats about 14 SYNs, which all get
lost in one case of ten thousand, and a path without loss costs one connect.
"""

from __future__ import annotations

import asyncio
import contextlib
import resource
import time
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.analysis.nodes import Outcome, Reached, RouteTo, Target
from holdfast.system.paths.connect import ConnectFailed, ProbeConnection
from holdfast.system.paths.neighbours import silent_neighbours
from holdfast.system.paths.routes import routes
from holdfast.system.sockets import error_name

SECONDS = 2.5
"""for the connect"""
PROOF_SECONDS = 2.0
"""more, for the answer of what was connected to"""
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
        ways = routes(source, targets)
    except OSError:  # no netlink here: the connects tell enough
        ways = ()
    by_target = {way.target: way for way in ways}
    open_files = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    room = asyncio.Semaphore(max(1, min(256, (open_files - 64) // CONNECTS)))

    async def one(target: Target) -> Reached:
        async with room:
            return await _reach(source, target, by_target.get(target), key=key, seconds=seconds)

    return tuple(await asyncio.gather(*map(one, targets)))


async def _reach(
    source: str, target: Target, way: RouteTo | None, *, key: bytes, seconds: float
) -> Reached:
    start = time.monotonic()
    async with _Attempts(target, key) as attempts:
        answer = await attempts.answer(start, seconds)
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


class _Attempts:
    """Several connects to one target; the first that ends, decides."""

    def __init__(self, target: Target, key: bytes) -> None:
        self._target, self._key = target, key
        self._running: dict[asyncio.Task[_Answer], ProbeConnection] = {}

    async def __aenter__(self) -> _Attempts:
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._running:
            task.cancel()
        await asyncio.gather(*self._running, return_exceptions=True)

    async def answer(self, start: float, seconds: float) -> _Answer:
        end = start + seconds
        while True:
            now = time.monotonic()
            connected = self._connected()
            if now >= end + (PROOF_SECONDS if connected else 0):
                return self._silence(connected, now)
            if now < end and (answer := self._start()):
                return answer
            gap = BUSY_GAP if connected else min(GAP, max(0.0, end - now))
            done, _ = await asyncio.wait(
                self._running, timeout=gap, return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                answers = [task.result() for task in done]
                return min(answers, key=lambda one: one.outcome is not Outcome.OK)

    def _start(self) -> _Answer | None:
        try:
            connection = ProbeConnection(self._target, self._key)
        except OSError as problem:  # out of descriptors: of no meaning for the path
            if self._running:
                return None
            return _Answer(Outcome.FAILED, error_name(problem), time.monotonic(), "")
        self._running[asyncio.ensure_future(_attempt(connection))] = connection
        return None

    def _connected(self) -> ProbeConnection | None:
        return next((one for one in self._running.values() if one.connected), None)

    def _silence(self, connected: ProbeConnection | None, now: float) -> _Answer:
        if connected:
            error = "connected, but no answer came"
            return _Answer(Outcome.FAILED, error, now, connected.local)
        local = next((one.local for one in self._running.values()), "")
        return _Answer(Outcome.DROPPED, "ETIMEDOUT: nothing came back", now, local)


async def _attempt(connection: ProbeConnection) -> _Answer:
    with connection:
        at = None
        try:
            await connection.connect()
            at = time.monotonic()
            await connection.prove()
        except ConnectFailed as failure:
            answer = (failure.outcome, failure.error)
        else:
            answer = (Outcome.OK, "")
        return _Answer(*answer, at or time.monotonic(), connection.local)
