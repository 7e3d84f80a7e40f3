"""How many small datagrams get lost on the way to a target, and how long the others take."""

from __future__ import annotations

import asyncio
import statistics
from collections.abc import Sequence

from holdfast.analysis.nodes import PathLoss, Target
from holdfast.system.paths import wire
from holdfast.system.paths.datagrams import DatagramSession
from holdfast.system.sockets import error_name

COUNT = 40
"""at 30 % loss all of them arrive in one case of a million"""
PACE = 0.01
"""seconds between two to the same target: no queue overflows by our own doing"""
LATE = 0.6
"""seconds that an answer may take before it counts as lost"""
QUESTIONS = 10
"""tries to learn from the target what arrived, where answers are missing"""


async def losses(
    source: str, targets: Sequence[Target], *, key: bytes, count: int = COUNT
) -> tuple[PathLoss, ...]:
    """All targets side by side: about `count` × `PACE` seconds, and `LATE` where answers lack."""
    if not 0 < count <= wire.NUMBERS:
        raise ValueError(f"count must be in 1..{wire.NUMBERS}, got {count}")
    return tuple(
        await asyncio.gather(*(_loss(source, target, key=key, count=count) for target in targets))
    )


async def _loss(source: str, target: Target, *, key: bytes, count: int) -> PathLoss:
    try:
        session = DatagramSession(target, key)
    except OSError as problem:
        return PathLoss(
            source=source,
            target=target,
            sent=0,
            arrived=None,
            answered=0,
            median_seconds=None,
            error=error_name(problem),
        )
    with session:
        for number in range(count):
            session.send(number)
            await asyncio.sleep(PACE)
        answers = session.round_trips
        if not await session.wait(lambda: len(answers) == count, LATE):
            await _ask_what_arrived(session)
    times = [seconds for number, seconds in answers.items() if number < count]
    return PathLoss(
        source=source,
        target=target,
        sent=count,
        arrived=min(count, session.seen.bit_count() + session.overflowed) if answers else None,
        answered=len(times),
        median_seconds=statistics.median(times) if times else None,
        fastest_seconds=min(times, default=None),
        error=next(iter(session.errors.values()), ""),
    )


async def _ask_what_arrived(session: DatagramSession) -> None:
    """An answer that was lost on the way back does not mean that the datagram was."""
    for _ in range(QUESTIONS):
        session.send(wire.ASK_SEEN)
        if await session.wait(lambda: wire.ASK_SEEN in session.round_trips, 0.1):
            return
