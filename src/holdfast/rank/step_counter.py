"""What counts as a step, and how long one usually takes.

A round ends when an optimizer comes round again: with one optimizer that is every call; with
one per parameter (optimizer-in-backward), with a wrapper around an inner one, or with several
that take turns, it is once for all of them. So it is with one that is called for each of its
parameter groups in turn, as DeepSpeed's ZeRO does: an optimizer counts together with the first
parameter that it holds at the moment. One that is replaced by another is no trouble: the new one
comes round as well.
"""

from __future__ import annotations

import bisect
from collections import deque
from typing import Any

WINDOW = 31
MOST = 5000
"""optimizers in a round: one that never comes round again, because it is made again for each step,
must not stop the count, or fill the memory"""

Caller = tuple[int, int]


def caller(optimizer: Any) -> Caller:
    """Which optimizer, with which parameters."""
    groups = optimizer.param_groups
    parameters = groups[0]["params"] if groups else ()
    return id(optimizer), id(parameters[0]) if parameters else 0


class StepCounter:
    """Counts the steps of the optimizers it is given."""

    def __init__(self) -> None:
        self.count = 0
        self.at = 0
        """when the last step ended, nanoseconds"""
        self.usual = 0
        """the median of the last durations, nanoseconds; 0 before the second step"""
        self._seen: set[Caller] = set()
        self._recent: deque[int] = deque()
        self._sorted: list[int] = []

    def called(self, optimizer: Caller, now: int) -> bool:
        """An optimizer did its work: was that a step?"""
        if self.count and optimizer not in self._seen and len(self._seen) < MOST:
            self._seen.add(optimizer)
            return False
        self._seen.clear()
        self._seen.add(optimizer)
        if self.count:
            self._learn(now - self.at)
        self.count += 1
        self.at = now
        return True

    def _learn(self, duration: int) -> None:
        if len(self._recent) == WINDOW:
            oldest = self._recent.popleft()
            del self._sorted[bisect.bisect_left(self._sorted, oldest)]
        self._recent.append(duration)
        bisect.insort(self._sorted, duration)
        self.usual = self._sorted[len(self._sorted) // 2]
