"""The coordinator's clocks as a launcher knows them: within the bound, also when one is set."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.nodes.clock_exchange import ClockReading
from holdfast.run.nodes.link.clock_offset import BothClocks, BothSamples, CoordinatorClock

SECOND = 10**9


class Machine:
    """Clocks that do what they are told, in ns."""

    def __init__(self, boot: float, monotonic: float, wall: float) -> None:
        self.boot, self.monotonic, self.wall = (int(x * SECOND) for x in (boot, monotonic, wall))

    def read(self, now: int) -> BothClocks:
        steady = self.boot + now
        return BothClocks(
            ClockReading(self.wall + now, steady, 0), ClockReading(self.monotonic + now, steady, 0)
        )


def exchanged(
    here: Machine, there: Machine, up: float, down: float, at: float = 0.0
) -> BothSamples:
    asked = int(at * SECOND)
    noted, answered = asked + int(up * SECOND), asked + int((up + down) * SECOND)
    return BothSamples(here.read(asked), there.read(noted), here.read(answered))


def true_shift(here: Machine, there: Machine) -> tuple[float, float]:
    return (there.monotonic - here.monotonic) / SECOND, (there.wall - here.wall) / SECOND


starts = st.floats(0, 10**6)
machines = st.builds(Machine, starts, starts, st.floats(1.7e9, 1.8e9))
delays = st.lists(st.tuples(st.floats(0, 0.4), st.floats(0, 0.4)), min_size=1, max_size=8)


@given(machines, machines, delays)
def test_the_truth_is_within_the_bound(
    here: Machine, there: Machine, delays: list[tuple[float, float]]
) -> None:
    clock = CoordinatorClock()
    for _ in range(3):
        clock.compared([exchanged(here, there, *one, at=n) for n, one in enumerate(delays)])
        monotonic, wall = true_shift(here, there)
        assert abs(clock.shift.monotonic - monotonic) <= clock.bound + 1e-5
        assert abs(clock.shift.wall - wall) <= clock.bound + 1e-5


def test_a_shift_that_still_fits_stays() -> None:
    here, there = Machine(10, 10, 1.7e9), Machine(5000, 4000, 1.7e9 + 2)
    clock = CoordinatorClock()
    clock.compared([exchanged(here, there, 0.2, 0.2)])
    first = clock.shift
    clock.compared([exchanged(here, there, 0.19, 0.21)])
    assert clock.shift == first
    assert clock.shift.monotonic == pytest.approx(3990, abs=0.001)
    assert clock.shift.wall == pytest.approx(2, abs=0.001)
    clock.compared([exchanged(here, there, 0.001, 0.001)])
    assert clock.bound < 0.2


def test_clocks_that_are_set_are_followed_at_once() -> None:
    here, there = Machine(10, 10, 1.7e9), Machine(5000, 4000, 1.7e9 + 2)
    clock = CoordinatorClock()
    clock.compared([exchanged(here, there, 0.001, 0.001)])
    here.wall += 90 * SECOND
    clock.own_wall(here.read(SECOND).wall)
    assert clock.shift.wall == pytest.approx(2 - 90, abs=0.01)
    there.wall -= 3600 * SECOND
    clock.their_wall(there.read(2 * SECOND).wall.distance)
    assert clock.shift.wall == pytest.approx(2 - 90 - 3600, abs=0.01)
    assert clock.shift.monotonic == pytest.approx(3990, abs=0.01)
    clock.compared([exchanged(here, there, 0.001, 0.001, at=10)])
    assert clock.shift.wall == pytest.approx(2 - 90 - 3600, abs=0.01)


def test_a_slow_drift_is_no_step() -> None:
    here, there = Machine(10, 10, 1.7e9), Machine(5000, 4000, 1.7e9 + 2)
    clock = CoordinatorClock()
    clock.compared([exchanged(here, there, 0.001, 0.001)])
    before = clock.shift
    here.wall += SECOND // 2000
    clock.own_wall(here.read(SECOND).wall)
    assert clock.shift == before
