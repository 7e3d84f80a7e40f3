"""The processes of all ranks, sorted into attempts: one start of all ranks each."""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from holdfast.analysis.drill.records import RankAttempt


class JobAttempt(NamedTuple):
    """One start of all ranks."""

    start: int
    """which start of the runner, from 0"""
    ranks: Mapping[int, RankAttempt]

    @property
    def world(self) -> int:
        return max(one.began.world for one in self.ranks.values())

    @property
    def began(self) -> float:
        return min(one.began.t for one in self.ranks.values())

    @property
    def taken(self) -> int:
        """Steps, by the rank that came furthest."""
        return max((one.steps[-1].step for one in self.ranks.values() if one.steps), default=0)

    @property
    def first_step(self) -> float | None:
        """When the first rank took it."""
        return min((one.steps[0].t for one in self.ranks.values() if one.steps), default=None)


def job_attempts(found: Iterable[RankAttempt], starts: Sequence[float] = ()) -> list[JobAttempt]:
    """In the order in which they began.

    Launchers count attempts from 0 at every start of theirs, and torchrun does not count a restart
    that a new node caused: a rank that trains a second time under one number belongs to the next.
    """
    attempts: dict[tuple[int, int, int], dict[int, RankAttempt]] = {}
    for one in sorted(_trainers(found, starts), key=lambda one: one.began.t):
        at = _start_of(one, starts), one.began.attempt
        again = 0
        while one.began.rank in attempts.get((*at, again), {}):
            again += 1
        attempts.setdefault((*at, again), {})[one.began.rank] = one
    made = [JobAttempt(start, ranks) for (start, _, _), ranks in sorted(attempts.items())]
    return sorted(made, key=lambda one: (one.start, one.began))


def _start_of(one: RankAttempt, starts: Sequence[float]) -> int:
    return max(bisect.bisect_right(starts, one.began.t) - 1, 0)


def _trainers(found: Iterable[RankAttempt], starts: Sequence[float]) -> list[RankAttempt]:
    """Without the children of ranks that have imported torch as well: they bear their parent's
    rank, and take no step."""
    listed = list(found)
    train = {_bearer(one, starts) for one in listed if one.steps or one.start}
    return [one for one in listed if one.steps or one.start or _bearer(one, starts) not in train]


def _bearer(one: RankAttempt, starts: Sequence[float]) -> tuple[int, int, int]:
    return _start_of(one, starts), one.began.attempt, one.began.rank
