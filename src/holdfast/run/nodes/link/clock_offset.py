"""How far the coordinator's clocks are from this machine's, kept up to date on a link.

Both wall clock and CLOCK_MONOTONIC (the clock of a scene) are compared over the clock that nothing
can set, as nodes/clock_exchange does. Of the own wall clock only its distance from that clock
enters, read when a report is sent: setting it makes no difference.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

from holdfast.analysis.nodes import ClockOffset
from holdfast.analysis.scene.clock_shift import ClockShift
from holdfast.nodes.clock_exchange import ClockReading, ClockSample, compared, read_clocks

SAMPLES = 8
EVERY = 10.0
"""seconds; two clocks drift apart by at most 10 ms in that time, by far less as a rule"""
STEP = 0.001


class BothClocks(NamedTuple):
    wall: ClockReading
    monotonic: ClockReading


class BothSamples(NamedTuple):
    asked: BothClocks
    there: BothClocks
    answered: BothClocks


def read_both() -> BothClocks:
    return BothClocks(read_clocks(), _read_monotonic())


def _read_monotonic() -> ClockReading:
    before = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    monotonic = time.monotonic_ns()
    after = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
    return ClockReading(wall=monotonic, steady=before, doubt=after - before)


class CoordinatorClock:
    """What to add to our times; within `bound` seconds of the truth."""

    def __init__(self) -> None:
        self.shift = ClockShift(0.0, 0.0)
        self.bound = 0.0
        self.known = False
        self._own_distance = 0.0
        self._their_distance = 0.0

    def compared(self, samples: Sequence[BothSamples]) -> None:
        """A shift that is still within what was measured stays: whatever was sent with it need not
        be sent again."""
        monotonic = _offset(samples, "monotonic")
        wall = _offset(samples, "wall")
        if monotonic is None or wall is None:
            return
        self.bound = max(monotonic.bound, wall.bound)
        self._own_distance = samples[-1].answered.wall.distance / 1e9
        self._their_distance = samples[-1].there.wall.distance / 1e9
        measured = ClockShift(monotonic.seconds, wall.seconds)
        if self.known and _within(self.shift, measured, self.bound):
            self.bound += _apart(self.shift, measured)
            return
        self.shift, self.known = measured, True

    def own_wall(self, wall: ClockReading) -> None:
        """Our wall clock as it is now: where it was set since, the shift of wall times follows."""
        step = wall.distance / 1e9 - self._own_distance
        if abs(step) > STEP + wall.doubt / 1e9:
            self._own_distance += step
            self.shift = self.shift._replace(wall=self.shift.wall - step)

    def their_wall(self, distance: int) -> None:
        """The coordinator's wall clock minus its steady one, as it says now, in ns."""
        step = distance / 1e9 - self._their_distance
        if abs(step) > STEP:
            self._their_distance += step
            self.shift = self.shift._replace(wall=self.shift.wall + step)


def _offset(samples: Sequence[BothSamples], which: str) -> ClockOffset | None:
    """The coordinator's clock minus ours."""
    found = compared(
        [
            ClockSample(
                getattr(s.asked, which), getattr(s.there, which), getattr(s.answered, which)
            )
            for s in samples
        ],
        node="the coordinator",
    ).offset
    return found if isinstance(found, ClockOffset) else None


def _apart(one: ClockShift, other: ClockShift) -> float:
    return max(abs(one.monotonic - other.monotonic), abs(one.wall - other.wall))


def _within(kept: ClockShift, measured: ClockShift, bound: float) -> bool:
    return _apart(kept, measured) <= max(bound, STEP)
