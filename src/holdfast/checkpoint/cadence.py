"""`from holdfast.checkpoint import cadence`: how often to save, and what to plan for. Pure.

    cadence.young(cost, mtbf), cadence.daly(cost, mtbf), cadence.best_interval(cost, mtbf)
    cadence.expected_loss(interval, cost, mtbf, restart)      shares of the time
    cadence.advice(interval, cost, mtbf, restart).sentence
    cadence.mtbf(uptime=…, failures=…, machines=…)            what is to be expected of this job
    cadence.auto_interval(stall=…, writing=…, mtbf=…)         what every="auto" does
    cadence.plan(training=…, mtbf=…, …)                       preemption: time, restarts, patience

All times in seconds. `cost` is how long a save pauses training: with `holdfast.Checkpoint`
the copy in memory, elsewhere the whole of `torch.save`.
"""

from __future__ import annotations

import math

import msgspec

from holdfast.analysis.checkpoints.save_interval import (
    DAY,
    ExpectedLoss,
    SaveAdvice,
    about,
    advice,
    auto_interval,
    best_interval,
    daly,
    expected_loss,
    mtbf,
    young,
)

__all__ = [
    "ExpectedLoss",
    "PreemptionPlan",
    "SaveAdvice",
    "advice",
    "auto_interval",
    "best_interval",
    "daly",
    "expected_loss",
    "mtbf",
    "plan",
    "young",
]

TORCH_JOIN_TIMEOUT = 600.0
"""torch's own default for how long the others wait for all machines to come"""


class PreemptionPlan(msgspec.Struct, frozen=True, kw_only=True):
    """What to expect of a long run on machines that go away."""

    interval: float
    wall: float
    """seconds from the first start to the last step, on average"""
    failures: float
    """on average"""
    restarts: int
    """for --max-restarts: enough in 99 of 100 such runs"""
    loss: ExpectedLoss
    lost_per_day: float
    """seconds of every day in which training makes no progress"""
    join_timeout: float
    sentence: str


def plan(
    *,
    training: float,
    mtbf: float,
    cost: float,
    interval: float | None = None,
    restart: float = 120.0,
    replacement: float = 0.0,
) -> PreemptionPlan:
    """`training`: seconds of undisturbed training. `restart`: from the failure to training again,
    on machines that are there; `replacement`: until another machine is there, when one is lost."""
    interval = interval or best_interval(cost, mtbf)
    loss = expected_loss(interval, cost, mtbf, restart + replacement)
    wall = training / (1 - loss.total) if loss.total < 1 else math.inf
    failures = wall / mtbf
    restarts = enough_for(failures) if failures < math.inf else 0
    if failures < math.inf:
        sentence = (
            f"{about(training)} of training take about {about(wall)}, with {failures:.0f} "
            f"failures; {about(loss.total * DAY)} of each day are lost; "
            f"--max-restarts {restarts} is enough in 99 of 100 such runs"
        )
    else:
        sentence = "this run never finishes: failures come faster than the job restarts"
    return PreemptionPlan(
        interval=interval,
        wall=wall,
        failures=failures,
        restarts=restarts,
        loss=loss,
        lost_per_day=loss.total * DAY,
        join_timeout=join_timeout(replacement),
        sentence=sentence,
    )


def join_timeout(replacement: float) -> float:
    """Twice the usual wait for a machine: the average is exceeded half the time."""
    return max(TORCH_JOIN_TIMEOUT, 2 * replacement)


def enough_for(mean: float, sure: float = 0.99) -> int:
    """The number that a Poisson count of that mean stays within, so surely."""
    if mean <= 0:
        return 0
    # Ten deviations below the mean there is nothing to add up, and e^-mean would vanish.
    count = max(0, int(mean - 10 * math.sqrt(mean)))
    chance = 0.0
    while True:
        chance += math.exp(count * math.log(mean) - mean - math.lgamma(count + 1))
        if chance >= sure:
            return count
        count += 1
