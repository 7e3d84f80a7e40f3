"""Whether the launcher's own loop, or the wall clock, can be trusted. Pure: times are passed in."""

from __future__ import annotations

LATE = 1.0
"""seconds: if our own loop was this late, the machine slept or starved, not the job; if the wall
clock moved this much against the monotonic one, it was set"""

PAUSED = 3.0
"""seconds of lateness that the nodes of a job are told: one of them was not there"""


def in_words(node: str, late: float) -> str:
    return (
        f"the launcher on {node} did not run for {late:.1f} s: it was stopped or suspended, or got "
        "no CPU time; all timers start again"
    )


class LoopClock:
    def __init__(self, now: float, wall: float) -> None:
        self._last, self._offset = now, wall - now

    def lateness(self, now: float) -> float:
        """Seconds, 0 when it came in time."""
        late = now - self._last
        self._last = now
        return late if late > LATE else 0.0

    def done(self, now: float) -> None:
        """A look is over: evidence takes its time, and is not lateness."""
        self._last = now

    def wall_was_set(self, now: float, wall: float) -> bool:
        before, self._offset = self._offset, wall - now
        return abs(self._offset - before) > LATE
