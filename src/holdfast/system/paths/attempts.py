"""Several attempts at one thing, started one after the other while none has ended."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

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
    """
    running: set[asyncio.Task[T]] = set()
    try:
        while (left := until() - time.monotonic()) > 0:
            if not running or another():
                running.add(asyncio.ensure_future(attempt()))
            done, _ = await asyncio.wait(
                running, timeout=min(gap, left), return_when=asyncio.FIRST_COMPLETED
            )
            if done:
                return [task.result() for task in done]
    finally:
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
    return []
