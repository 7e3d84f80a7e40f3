"""When a save is due, by table and by property: all ranks obey the same steps."""

from __future__ import annotations

from datetime import timedelta
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import save_schedule
from holdfast.checkpoint.save_schedule import Announcement, SaveInterval, SaveSchedule
from holdfast.errors import ConfigError
from holdfast.rank.durations import Duration


@pytest.mark.parametrize(
    ("every", "meant"),
    [
        (30, SaveInterval(seconds=30)),
        (2.5, SaveInterval(seconds=2.5)),
        (timedelta(minutes=5), SaveInterval(seconds=300)),
        ("30s", SaveInterval(seconds=30)),
        (" 5m ", SaveInterval(seconds=300)),
        ("2h", SaveInterval(seconds=7200)),
        ("1.5h", SaveInterval(seconds=5400)),
        ("auto", SaveInterval(auto=True)),
    ],
)
def test_every_is_a_duration_or_auto(every: Duration, meant: SaveInterval) -> None:
    assert save_schedule.save_interval(every, None) == meant
    assert save_schedule.save_interval("auto", 100) == SaveInterval(steps=100)


@pytest.mark.parametrize("every", [0, -5, True, "", "5", "5 days", "0s", "-1m", None])
def test_anything_else_is_refused_by_its_name(every: object) -> None:
    with pytest.raises(ConfigError, match=r"every must be (> 0|a duration), got"):
        save_schedule.save_interval(every, None)  # type: ignore[arg-type]


@pytest.mark.parametrize("steps", [0, -5, True, "5m", 2.5])
def test_steps_are_a_whole_number(steps: object) -> None:
    with pytest.raises(ConfigError, match="every_steps must be a whole number > 0, got"):
        save_schedule.save_interval("auto", steps)  # type: ignore[arg-type]


def test_every_and_every_steps_exclude_each_other() -> None:
    with pytest.raises(ConfigError, match="exclude each other"):
        save_schedule.save_interval("5m", 100)


def interval(every: str | int) -> SaveInterval:
    """A number means steps here."""
    return save_schedule.save_interval(
        *(("auto", every) if isinstance(every, int) else (every, None))
    )


class Course:
    """Rank 0 of a job whose steps take `pace` seconds and whose saves take `write`."""

    def __init__(
        self, every: str | int, *, pace: float, write: float = 0.0, start: int = 0
    ) -> None:
        self.schedule = SaveSchedule(interval(every), start=start, now=0.0)
        self.announcement = save_schedule.first_announcement(start)
        self.pace, self.write, self.start = pace, write, start
        self.busy_until = -1.0
        self.saves: list[int] = []
        self.points: list[int] = []
        self.stopped_at = 0

    def run(
        self, steps: int, requests: dict[int, save_schedule.RequestKind] | None = None
    ) -> Course:
        pending: save_schedule.RequestKind = ""
        for step in range(self.start + 1, self.start + steps + 1):
            now = (step - self.start) * self.pace
            pending = (requests or {}).get(step, pending)
            if step != self.announcement.step:
                continue
            self.points.append(step)
            if self.announcement.save:
                self.saves.append(step)
                self.busy_until = now + self.write
            if self.announcement.stop:
                self.stopped_at = step
                break
            self.announcement = self.schedule.announce_next(
                self.announcement, now=now, busy=now < self.busy_until, requested=pending
            )
            pending = "" if self.announcement.save else pending
        return self


def test_every_hundred_steps_means_exactly_those() -> None:
    assert Course(100, pace=0.01).run(450).saves == [100, 200, 300, 400]


def test_a_resumed_job_keeps_the_multiples() -> None:
    assert Course(100, pace=0.01, start=250).run(200).saves == [300, 400]


def test_steps_faster_than_the_sync_points_are_saved_all_the_same() -> None:
    assert Course(10, pace=0.0001).run(50).saves == [10, 20, 30, 40, 50]


def test_a_slow_disk_delays_the_next_save_and_skips_none_for_good() -> None:
    course = Course(100, pace=0.01, write=1.5).run(600)
    assert course.saves[0] == 100
    assert all(later - sooner >= 150 for sooner, later in pairwise(course.saves))
    assert course.saves[1] < 300


def test_a_duration_means_about_that_time() -> None:
    saves = Course("30s", pace=0.1).run(1000).saves
    assert len(saves) == 3
    assert all(abs(later - sooner - 300) <= 6 for sooner, later in pairwise(saves))


def test_sync_points_come_about_twice_a_second() -> None:
    points = Course("5m", pace=0.01).run(2000).points
    gaps = [later - sooner for sooner, later in pairwise(points)]
    assert max(gaps) == 50
    assert len(points) < 60


def test_a_short_interval_is_looked_at_more_often() -> None:
    saves = Course("1s", pace=0.01).run(1000).saves
    assert all(abs(later - sooner - 100) <= 10 for sooner, later in pairwise(saves))


def test_long_steps_are_all_sync_points() -> None:
    assert Course("5m", pace=8.0).run(20).points == list(range(1, 21))


def test_a_request_is_granted_at_the_next_sync_point() -> None:
    course = Course("2h", pace=0.01).run(1000, {500: "save"})
    assert len(course.saves) == 1
    assert 500 < course.saves[0] <= 600


def test_the_end_does_not_wait_for_the_disk() -> None:
    course = Course(100, pace=0.01, write=1000.0).run(1000, {500: "stop"})
    assert 500 < course.stopped_at <= 600
    assert course.saves == [100, course.stopped_at]


def test_after_a_pause_the_sync_points_are_close_again() -> None:
    schedule = SaveSchedule(interval("1h"), start=0, now=0.0)
    announcement = save_schedule.first_announcement(0)
    now = 0.0
    for _ in range(12):
        now += 0.001 * 64
        announcement = schedule.announce_next(announcement, now=now, busy=False, requested="")
    announcement = schedule.announce_next(announcement, now=now + 3600, busy=False, requested="")
    assert announcement.following - announcement.step == 1


@given(
    every=st.one_of(st.integers(1, 40), st.sampled_from(["1s", "3s", "10s", "auto"])),
    start=st.integers(0, 10**6),
    paces=st.lists(st.floats(1e-5, 5.0), min_size=1, max_size=60),
    busy=st.lists(st.booleans(), min_size=1, max_size=60),
    requests=st.lists(st.sampled_from(["", "", "", "save"]), min_size=1, max_size=60),
    lags=st.lists(st.integers(0, 5), min_size=2, max_size=4),
)
def test_all_ranks_save_at_the_same_steps_whatever_their_speeds(
    every: str | int,
    start: int,
    paces: list[float],
    busy: list[bool],
    requests: list[save_schedule.RequestKind],
    lags: list[int],
) -> None:
    announcements: dict[int, Announcement] = {1: save_schedule.first_announcement(start)}
    schedule = SaveSchedule(interval(every), start=start, now=0.0)
    now, announcement, led = 0.0, announcements[1], []
    steps = range(start + 1, start + 120)
    for index, step in enumerate(steps):
        now += paces[index % len(paces)]
        if step == announcement.step:
            led += [step] if announcement.save else []
            announcement = schedule.announce_next(
                announcement,
                now=now,
                busy=busy[index % len(busy)],
                requested=requests[index % len(requests)],
            )
            announcements[announcement.number] = announcement
            # Published a sync point ahead: a rank that is no further than rank 0 never waits.
            assert announcement.step > step
            assert announcement.following > announcement.step
    for lag in lags:
        followed, number = [], 1
        for step in range(start + 1, start + 120 - lag):
            if number in announcements and step == announcements[number].step:
                followed += [step] if announcements[number].save else []
                number += 1
        assert followed == [step for step in led if step < start + 120 - lag]
