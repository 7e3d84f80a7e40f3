"""Several attempts at one thing, started one after the other while none has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

PUNCTUAL = 0.02
"""seconds; a timer that is late by less is on time"""
MOST_STARVED = 5.0

T = TypeVar("T")


async def first_to_end(
    attempt: Callable[[], Coroutine[Any, Any, T]],
    *,
    gap: float,
    until: Callable[[], float],
    another: Callable[[], bool],
) -> list[T]:
    """What the first of them answers (all that end in the same moment); [] when time is up.

    Every `gap` seconds `another` is asked whether to start one more. The others are cancelled.
    Time in which this process itself did not get to run does not count.
    """
    running: set[asyncio.Task[T]] = set()
    starved = 0.0
    try:
        while (left := until() + min(starved, MOST_STARVED) - (now := time.monotonic())) > 0:
            if not running or another():
                running.add(asyncio.ensure_future(attempt()))
            turn = min(gap, left)
            done, _ = await asyncio.wait(running, timeout=turn, return_when=asyncio.FIRST_COMPLETED)
            if done:
                return [task.result() for task in done]
            starved += max(0.0, time.monotonic() - now - turn - PUNCTUAL)
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return []
