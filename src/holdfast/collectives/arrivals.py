"""Who comes last to the collectives, again and again, from the times in the ranks' recorders.

The times are the host's clock on one machine; for NCCL they show when the host asked.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable

import msgspec

from holdfast.signals import Recorder, Scene

WINDOW = 64
"""collectives looked at"""
ENOUGH = 8
NEGLIGIBLE = 0.005
"""seconds of lag that any scheduler makes"""
BREAK = 10.0
"""seconds between two collectives: an evaluation or a save lies between, not a step"""


class Late(msgspec.Struct, frozen=True, kw_only=True):
    rank: int
    group: str
    last: int
    """how often it came last by more than a scheduler's whim"""
    seen: int
    lag: float
    """seconds, the median of those"""
    share: float
    """of the time the others spent waiting for it"""


def latecomer(scene: Scene) -> Late | None:
    """The one rank that is late in the group the job talks through most."""
    recorders = {v.rank: v.recorder for v in scene.ranks if isinstance(v.recorder, Recorder)}
    if len(recorders) < 2 or len(recorders) < len(scene.ranks):
        return None
    shared = set.intersection(*(set(r.entered) for r in recorders.values()))
    rounds = max((_rounds(recorders, group) for group in sorted(shared)), key=len, default=[])
    if len(rounds) < ENOUGH:
        return None
    group = rounds[0][0]
    late: dict[int, list[float]] = {}
    for _, arrivals in rounds:
        last_at = max(arrivals.values())
        last = [r for r, at in arrivals.items() if at == last_at]
        if len(last) > 1:
            continue
        rank = last[0]
        lag = last_at - statistics.median(at for r, at in arrivals.items() if r != rank)
        if lag > NEGLIGIBLE:
            late.setdefault(rank, []).append(lag)
    if not late:
        return None
    worst = max(late, key=lambda rank: sum(late[rank]))
    lags = late[worst]
    total = sum(sum(values) for values in late.values())
    if len(lags) < ENOUGH // 2 or sum(lags) < 0.8 * total:
        return None  # they take turns: no one is slow
    return Late(
        rank=worst,
        group=group,
        last=len(lags),
        seen=len(rounds),
        lag=statistics.median(lags),
        share=min(1.0, sum(lags) / max(_time_spent(rounds), 1e-9)),
    )


def _rounds(recorders: dict[int, Recorder], group: str) -> list[tuple[str, dict[int, float]]]:
    """The last collectives of the group that every rank has entered, oldest first."""
    times: dict[int, dict[int, float]] = {}
    for rank, recorder in recorders.items():
        for collective in recorder.collectives:
            if collective.group == group and collective.created:
                times.setdefault(collective.sequence, {})[rank] = collective.created
    complete = [times[n] for n in sorted(times) if len(times[n]) == len(recorders)]
    return [(group, arrivals) for arrivals in complete[-WINDOW:]]


def _time_spent(rounds: Iterable[tuple[str, dict[int, float]]]) -> float:
    ends = [max(arrivals.values()) for _, arrivals in rounds]
    return sum(b - a for a, b in itertools.pairwise(ends) if b - a < BREAK)
