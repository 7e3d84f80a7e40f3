"""The interval that is returned loses least, and what is planned is what a simulated job needs."""

from __future__ import annotations

import math
import random

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.checkpoint import cadence
from holdfast.errors import ConfigError

HOUR, DAY = 3600.0, 86400.0

costs = st.floats(0.01, 600)
rates = st.floats(300, 1e8)


@given(cost=costs, mtbf=rates)
def test_no_other_interval_loses_less(cost: float, mtbf: float) -> None:
    best = cadence.best_interval(cost, mtbf)
    least = cadence.expected_loss(best, cost, mtbf, 60.0).total
    for factor in (0.1, 0.5, 0.8, 0.95, 1.05, 1.25, 2.0, 10.0):
        other = cadence.expected_loss(best * factor, cost, mtbf, 60.0).total
        assert other >= least - 1e-9
        if factor in (0.1, 10.0) and least < 0.5:
            assert other > least


@given(cost=costs, mtbf=rates)
def test_the_estimates_agree_where_saves_are_cheap(cost: float, mtbf: float) -> None:
    assume(cost < mtbf / 100)
    best = cadence.best_interval(cost, mtbf)
    assert cadence.daly(cost, mtbf) == pytest.approx(best, rel=0.001)
    assert cadence.young(cost, mtbf) == pytest.approx(best, rel=0.06)


@pytest.mark.parametrize(
    ("cost", "mtbf", "young", "daly"),
    [
        (300.0, DAY, 7200.0, 7002.8),  # √(2·300·86400) = 7200
        (60.0, 2 * HOUR, 929.5, 889.9),
        (1.0, DAY, 415.7, 415.0),
    ],
)
def test_numbers_worked_by_hand(cost: float, mtbf: float, young: float, daly: float) -> None:
    assert cadence.young(cost, mtbf) == pytest.approx(young, rel=1e-3)
    assert cadence.daly(cost, mtbf) == pytest.approx(daly, rel=1e-3)


def test_saves_dearer_than_failures() -> None:
    assert cadence.daly(10 * HOUR, HOUR) == HOUR
    assert cadence.best_interval(10 * HOUR, HOUR) == pytest.approx(HOUR, rel=0.01)


@given(interval=st.floats(1, 1e6), cost=costs, mtbf=rates, restart=st.floats(0, 7200))
def test_shares_of_the_time(interval: float, cost: float, mtbf: float, restart: float) -> None:
    loss = cadence.expected_loss(interval, cost, mtbf, restart)
    assert min(loss.saving, loss.repeating, loss.restarting) >= -1e-12
    assert 0 <= loss.total <= 1 + 1e-12


def simulated(interval: float, cost: float, mtbf: float, restart: float) -> tuple[float, int]:
    """Wall time and failures of so many intervals; failures come at random, in restarts too."""
    chance = random.Random(5)
    wall, failures, done = 0.0, 0, 0
    until = chance.expovariate(1 / mtbf)
    while done < 4000:
        if until >= interval + cost:
            wall, until, done = wall + interval + cost, until - interval - cost, done + 1
            continue
        wall, failures = wall + until, failures + 1
        while (until := chance.expovariate(1 / mtbf)) < restart:
            wall, failures = wall + until, failures + 1
        wall, until = wall + restart, until - restart
    return wall, failures


@pytest.mark.parametrize("interval", [120.0, 600.0, 2400.0])
def test_a_simulated_job_loses_as_much(interval: float) -> None:
    cost, mtbf, restart = 20.0, 1800.0, 90.0
    wall, failures = simulated(interval, cost, mtbf, restart)
    loss = cadence.expected_loss(interval, cost, mtbf, restart)
    assert 1 - 4000 * interval / wall == pytest.approx(loss.total, rel=0.05)
    assert failures == pytest.approx(wall / mtbf, rel=0.08)
    plan = cadence.plan(training=4000 * interval, mtbf=mtbf, cost=cost, interval=interval,
                        restart=restart)  # fmt: skip
    assert plan.wall == pytest.approx(wall, rel=0.03)
    assert plan.restarts >= failures


# --- what is expected of a job -----------------------------------------------------------------


def test_what_was_seen_outweighs_what_was_assumed() -> None:
    def expected(days: float, failures: int, machines: int = 1) -> float:
        return cadence.mtbf(uptime=days * DAY, failures=failures, machines=machines) / DAY

    assert expected(0, 0) == pytest.approx(1.0, rel=0.01)
    assert expected(0, 0, machines=2048) == pytest.approx(1 / (1 + 2048 / 264), rel=0.01)
    assert expected(10, 0) == pytest.approx(11, rel=0.01)
    assert expected(10, 10) == pytest.approx(1, rel=0.01)
    assert expected(100, 1000) == pytest.approx(0.1, rel=0.02)


@given(stall=st.floats(0, 1000), writing=st.floats(0, 1e5), mtbf=rates)
def test_auto_keeps_its_bounds(stall: float, writing: float, mtbf: float) -> None:
    interval = cadence.auto_interval(stall=stall, writing=writing, mtbf=mtbf)
    assert interval >= max(30, 10 * stall, 4 * writing)
    if stall <= 360 and writing <= 900:
        assert interval <= HOUR


@pytest.mark.parametrize(
    ("stall", "writing", "mtbf", "interval"),
    [
        (0.3, 3.0, DAY, 227.5),  # the best one
        (0.3, 90.0, DAY, 360.0),  # a slow disk
        (0.001, 0.1, DAY, 30.0),  # nothing to save
        (30.0, 40.0, 365 * DAY, HOUR),  # machines that never fail
    ],
)
def test_auto(stall: float, writing: float, mtbf: float, interval: float) -> None:
    found = cadence.auto_interval(stall=stall, writing=writing, mtbf=mtbf)
    assert found == pytest.approx(interval, rel=1e-3)


@pytest.mark.parametrize(
    ("interval", "cost", "far_off", "words"),
    [
        (2 * HOUR, 2.0, True, "saving every 2 hours loses about 4.1 % of the time, every 10 min"),
        (300.0, 2.0, False, "saving every 5 minutes loses about 0.84 % of the time (a save"),
        (10.0, 2.0, True, "saving every 10 s loses about 17 % of the time, every 10 minutes"),
    ],
)
def test_advice(interval: float, cost: float, far_off: bool, words: str) -> None:
    advice = cadence.advice(interval, cost, DAY)
    assert (advice.far_off, advice.sentence[: len(words)]) == (far_off, words)
    assert advice.sentence.endswith("for 2 s, a failure is expected every 24 hours)")


@given(cost=costs, writing=st.floats(0, 1000), mtbf=rates)
def test_auto_intervals_are_never_far_off(cost: float, writing: float, mtbf: float) -> None:
    interval = cadence.auto_interval(stall=cost, writing=writing, mtbf=mtbf)
    assert not cadence.advice(interval, cost, mtbf, writing=writing).far_off


# --- planning ----------------------------------------------------------------------------------


def test_a_week_on_machines_that_go_away() -> None:
    plan = cadence.plan(training=7 * DAY, mtbf=4 * HOUR, cost=1.0, replacement=900.0)
    assert plan.interval == cadence.best_interval(1.0, 4 * HOUR)
    assert plan.wall > 7 * DAY
    assert plan.failures == plan.wall / (4 * HOUR)
    assert plan.restarts > plan.failures
    assert plan.lost_per_day == plan.loss.total * DAY
    assert plan.join_timeout == 1800.0
    assert f"--max-restarts {plan.restarts} is enough" in plan.sentence


def test_a_job_that_never_gets_going() -> None:
    plan = cadence.plan(training=DAY, mtbf=1.0, cost=60.0, restart=3600.0)
    assert plan.wall == math.inf
    assert "never finishes" in plan.sentence


@pytest.mark.parametrize(("mean", "enough"), [(0, 0), (0.01, 0), (1, 4), (10, 18), (43.76, 60)])
def test_restarts_enough_for(mean: float, enough: int) -> None:
    assert cadence.enough_for(mean) == enough


@given(st.floats(1, 1e6))
def test_enough_is_above_the_mean(mean: float) -> None:
    enough = cadence.enough_for(mean)
    assert mean < enough < mean + 3 * math.sqrt(mean) + 4


@pytest.mark.parametrize(("interval", "mtbf"), [(0.0, 1.0), (1.0, 0.0), (math.nan, 1.0)])
def test_no_time_is_refused(interval: float, mtbf: float) -> None:
    with pytest.raises(ConfigError, match="must be > 0, got"):
        cadence.expected_loss(interval, 1.0, mtbf)
