from __future__ import annotations

from holdfast.run.watch.loop_clock import LoopClock


def test_late_is_who_was_away_for_more_than_a_second() -> None:
    clock = LoopClock(100.0, 1e9)
    assert clock.lateness(100.9) == 0
    assert clock.lateness(121.0) > 20
    clock.done(130.0)
    assert clock.lateness(130.5) == 0


def test_a_wall_clock_that_is_set_is_noticed_once() -> None:
    clock = LoopClock(100.0, 1e9)
    assert not clock.wall_was_set(150.0, 1e9 + 50.2)
    assert clock.wall_was_set(151.0, 1e9 + 3651.0)
    assert not clock.wall_was_set(152.0, 1e9 + 3652.0)
    assert clock.wall_was_set(153.0, 1e9 + 53.0)
