"""What saving costs, what not saving costs, and the interval between saves that loses least. Pure.

Failures come at random, on average every `mtbf` seconds. Between two saves are `interval` seconds
of training; a save pauses training for `cost` seconds; after a failure `restart` seconds pass
before it trains again (finding out, starting, loading; and the time a save takes to become safe
while training continues, since a failure falls back behind it). Then `interval` seconds of progress
take on average

    mtbf · e^(restart/mtbf) · (e^((interval+cost)/mtbf) − 1)

seconds (J. T. Daly, A higher order estimate of the optimum checkpoint interval for restart dumps,
Future Generation Computer Systems 22, 2006). Young's older √(2·cost·mtbf) is what is
left of it where saves are cheap (J. W. Young, Communications of the ACM 17, 1974).
"""

from __future__ import annotations

import math

import msgspec

from holdfast.errors import ConfigError

DAY = 86400.0
PER_MACHINE_DAY = 419 / (54 * 16384 / 8)
"""failures of the machine itself: 419 unexpected interruptions in 54 days of 16,384 GPUs, 8 in each
machine (The Llama 3 Herd of Models, 2024, arXiv 2407.21783, section 3.3.4). One in 264 days."""
PER_JOB_DAY = 1.0
"""and of all else: the program, the disk, preemption. No source: a cautious choice. To be
ready for one failure a day that never comes costs a save every few minutes; not to be ready for
one that comes costs an hour."""

SHORTEST, LONGEST = 30.0, 3600.0
"""bounds of `every="auto"`: more often is hard on a disk that others use too; less often than every
hour is more than anyone likes to lose, whatever the average says"""
STALLS_APART = 10
"""at most a tenth of the time is spent on saves, however bad the machines are"""
WRITES_APART = 4
"""and the disk is busy with us for a quarter of the time at most"""

NO_TIME = 0.001
"""seconds that every save costs: were it nothing, the best interval would be nothing"""
FAR_OFF = 0.02
"""share of all time lost for nothing, from which on an interval is worth a warning"""


class ExpectedLoss(msgspec.Struct, frozen=True, kw_only=True):
    """Shares of all time (0 … 1) in which training makes no progress."""

    saving: float
    repeating: float
    """work done again that was done after the last save"""
    restarting: float

    @property
    def total(self) -> float:
        return self.saving + self.repeating + self.restarting


class SaveAdvice(msgspec.Struct, frozen=True, kw_only=True):
    interval: float
    best: float
    """within the bounds of `auto_interval`"""
    loss: ExpectedLoss
    best_loss: ExpectedLoss
    far_off: bool
    sentence: str


def young(cost: float, mtbf: float) -> float:
    return math.sqrt(2 * cost * mtbf)


def daly(cost: float, mtbf: float) -> float:
    """Daly's estimate in closed form."""
    if cost >= 2 * mtbf:
        return mtbf
    part = cost / (2 * mtbf)
    return young(cost, mtbf) * (1 + math.sqrt(part) / 3 + part / 9) - cost


def best_interval(cost: float, mtbf: float) -> float:
    """Where the expected loss is least; solved, not estimated. It does not depend on `restart`.

    The derivative is 0 where x − 1 + e^(−x−c) = 0, with x and c in units of mtbf; that grows with
    x, from below 0 at x = 0 to above it at x = 1.
    """
    _refuse_nothing(mtbf=mtbf)
    ratio, low, high = max(cost, NO_TIME) / mtbf, 0.0, 1.0
    while high - low > 1e-12 * high:
        middle = (low + high) / 2
        if middle in (low, high):
            break
        if middle + math.expm1(-middle - ratio) < 0:
            low = middle
        else:
            high = middle
    return high * mtbf


def expected_loss(interval: float, cost: float, mtbf: float, restart: float = 0.0) -> ExpectedLoss:
    _refuse_nothing(interval=interval, mtbf=mtbf)
    # Beyond e^700 no float goes; nothing gets done long before.
    exponent = (interval + cost + restart) / mtbf
    if exponent > 700:
        return ExpectedLoss(saving=0.0, repeating=1.0, restarting=0.0)
    taken = mtbf * math.exp(restart / mtbf) * math.expm1((interval + cost) / mtbf)
    total = max(0.0, 1 - interval / taken)
    saving = min(cost / taken, total)
    # Of each of the taken/mtbf failures; failures while restarting count as repeated work.
    restarting = min(restart / mtbf, total - saving)
    return ExpectedLoss(saving=saving, repeating=total - saving - restarting, restarting=restarting)


def advice(
    interval: float, cost: float, mtbf: float, restart: float = 0.0, writing: float = 0.0
) -> SaveAdvice:
    """Is that interval a good one, and which would be? `writing`: seconds until a save is safe."""
    best = auto_interval(stall=cost, writing=writing, mtbf=mtbf)
    loss, least = (expected_loss(each, cost, mtbf, restart + writing) for each in (interval, best))
    far_off = loss.total - least.total >= FAR_OFF
    sentence = f"saving every {about(interval)} loses about {_percent(loss)} of the time"
    if far_off:
        sentence += f", every {about(best)} about {_percent(least)}"
    why = f"a save pauses training for {about(cost)}, a failure is expected every "
    return SaveAdvice(
        interval=interval,
        best=best,
        loss=loss,
        best_loss=least,
        far_off=far_off,
        sentence=f"{sentence} ({why}{about(mtbf)})",
    )


def _refuse_nothing(**times: float) -> None:
    for name, seconds in times.items():
        if not seconds > 0:  # nor is nan
            raise ConfigError(f"{name} must be > 0, got {seconds}")


def about(seconds: float) -> str:
    """'25 hours' rather than '1 day', '0.4 s' rather than '0 s'."""
    for unit, length in (("days", 86400.0), ("hours", 3600.0), ("minutes", 60.0)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {unit}"
    return f"{seconds:.0f} s" if seconds >= 10 else f"{seconds:.2g} s"


def _percent(loss: ExpectedLoss) -> str:
    share = 100 * loss.total
    return f"{share:.0f} %" if share >= 10 else f"{share:.2g} %"


# --- what is to be expected of a job


def mtbf(*, uptime: float, failures: int, machines: int = 1) -> float:
    """Mean time between failures to be expected after what was seen of this job.

    A gamma prior worth one failure, at the rates above, and a Poisson number of failures in
    `uptime`: the mean of the rate is (1 + failures) / (prior time + uptime).
    """
    prior = DAY / (PER_JOB_DAY + machines * PER_MACHINE_DAY)
    return (prior + max(uptime, 0.0)) / (1 + failures)


def auto_interval(*, stall: float, writing: float, mtbf: float) -> float:
    """The best interval, within bounds. `writing`: seconds until a save is safe."""
    lowest = max(SHORTEST, STALLS_APART * stall, WRITES_APART * writing)
    return max(lowest, min(best_interval(stall, mtbf), LONGEST))
