"""How many small datagrams get lost on the way to a target, and how long the others take.

A path that loses none of the first few is fine. Of one that does many more are sent, so that one
lost by a busy machine weighs little and a few percent are seen.
"""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.analysis.nodes import PathLoss, Target
from holdfast.system.paths import wire
from holdfast.system.paths.datagrams import DatagramSession
from holdfast.system.paths.descriptors import room_for
from holdfast.system.sockets import error_name

COUNT = 40
"""at 30 % loss all of them arrive in one case of a million"""
SECOND_LOOK = 3
"""sessions of 64 more, side by side"""
PACE = 0.01
"""seconds between two of a session: no queue overflows by our own doing"""
SOON, LATE = 0.1, 0.6
"""seconds: answers are usually here; an answer counts as lost"""
QUESTIONS = 10
"""tries to learn from the target what arrived, where answers are missing"""


class _Count(NamedTuple):
    sent: int
    arrived: int | None
    times: list[float]
    error: str


async def losses(
    source: str, targets: Sequence[Target], *, key: bytes, count: int = COUNT
) -> tuple[PathLoss, ...]:
    """All targets side by side: about `count` × `PACE` seconds, and 2 s more for a lossy one."""
    if not 0 < count <= wire.NUMBERS:
        raise ValueError(f"count must be in 1..{wire.NUMBERS}, got {count}")
    room = asyncio.Semaphore(room_for(SECOND_LOOK, most=256))

    async def one(target: Target) -> PathLoss:
        async with room:
            return await _loss(source, target, key=key, count=count)

    return tuple(await asyncio.gather(*map(one, targets)))


async def _loss(source: str, target: Target, *, key: bytes, count: int) -> PathLoss:
    first = await _count(target, key, count)
    counts = [first]
    if 0 < len(first.times) < count:
        more = (_count(target, key, wire.NUMBERS) for _ in range(SECOND_LOOK))
        counts += [one for one in await asyncio.gather(*more) if one.arrived is not None]
    times = [seconds for one in counts for seconds in one.times]
    return PathLoss(
        source=source,
        target=target,
        sent=sum(one.sent for one in counts),
        arrived=None if first.arrived is None else sum(one.arrived or 0 for one in counts),
        answered=len(times),
        median_seconds=statistics.median(times) if times else None,
        fastest_seconds=min(times, default=None),
        error=first.error,
    )


async def _count(target: Target, key: bytes, count: int) -> _Count:
    try:
        session = DatagramSession(target, key)
    except OSError as problem:
        return _Count(0, None, [], error_name(problem))
    with session:
        for number in range(count):
            session.send(number)
            await asyncio.sleep(PACE)
        if not await session.wait(lambda: len(session.round_trips) == count, SOON):
            await _learn_what_arrived(session)
    answered = {number: s for number, s in session.round_trips.items() if number < count}
    return _Count(
        sent=count,
        # what the target's own full queue dropped did arrive
        arrived=min(count, session.seen.bit_count() + session.overflowed)
        if session.round_trips
        else None,
        times=list(answered.values()),
        error=next(iter(session.errors.values()), ""),
    )


async def _learn_what_arrived(session: DatagramSession) -> None:
    """An answer that was lost on the way back does not mean that the datagram was."""
    for _ in range(QUESTIONS):
        session.send(wire.ASK_SEEN)
        if await session.wait(lambda: wire.ASK_SEEN in session.round_trips, SOON):
            break
    await session.wait(lambda: _answers(session) >= session.seen.bit_count() > 0, LATE)


def _answers(session: DatagramSession) -> int:
    return sum(number < wire.NUMBERS for number in session.round_trips)
