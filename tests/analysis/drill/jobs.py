"""Made-up jobs for the tests of this room: a toy training whose weights are a number for each rank,
and which can be broken in any way."""

from __future__ import annotations

import functools
import hashlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.analysis.drill.case import case_of
from holdfast.analysis.drill.damage import resumes_without_damage
from holdfast.analysis.drill.injection import Act, Injection, SignalProcess, Then
from holdfast.analysis.drill.judge import judge
from holdfast.analysis.drill.outcome import DrillRow, Observed, Spoken
from holdfast.analysis.drill.records import (
    BeforeStepsRecord,
    BeganRecord,
    RankAttempt,
    StepRecord,
)
from holdfast.analysis.drill.reference import Reference, reference
from holdfast.analysis.drill.rehearsal import JobShape, Rehearsal
from holdfast.analysis.drill.trace import Trace

SECONDS = 0.5
"""of a step"""
EPOCH = 10
"""steps in an epoch: other samples in each"""
ACT: Act = SignalProcess(number=9)

Change = Callable[[StepRecord], StepRecord]


@functools.cache
def digest(*parts: object) -> str:
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


@functools.cache
def number(*parts: object) -> int:
    return int(digest(*parts), 16)


@functools.cache
def loss_at(step: int, rank: int, seed: str = "") -> float:
    return 4.0 / (1 + step) + (number("loss", step, rank, seed) % 1000) / 1e5


@functools.cache
def values_at(step: int, seed: str = "") -> tuple[float, ...]:
    return tuple(step * 0.01 + (number("v", at, seed) % 100) / 100 for at in range(3))


def rank_attempt(
    rank: int,
    *,
    world: int = 4,
    attempt: int = 0,
    base: int = 0,
    until: int = 30,
    t: float = 0.0,
    seed: str = "",
    sharded: bool = False,
    change: Change = lambda record: record,
    before: Mapping[str, object] | None = None,
) -> RankAttempt:
    """One that resumed at step `base`, and took steps up to and including `until`."""
    mine = rank if sharded else "all"
    steps = [
        change(
            StepRecord(
                t=t + 1 + (step - base) * SECONDS,
                step=step - base,
                loss=loss_at(step, rank, seed),
                weights=digest("w", step, mine, seed),
                values=values_at(step, seed),
                data=number("data", step, rank),
                samples=8,
            )
        )
        for step in range(base + 1, until + 1)
    ]
    start = BeforeStepsRecord(
        t=t + 1,
        weights=digest("w", base, mine, seed),
        optimizer_step=base,
        values=values_at(base, seed),
    )
    return RankAttempt(
        began=BeganRecord(
            t=t, rank=rank, world=world, attempt=attempt, pid=1000 + rank, host="here"
        ),
        start=msgspec.structs.replace(start, **(before or {})),
        steps=tuple(steps),
    )


def ranks(world: int = 4, **kwargs: Any) -> list[RankAttempt]:
    return [rank_attempt(rank, world=world, **kwargs) for rank in range(world)]


def undisturbed(steps: int = 30, world: int = 4, **kwargs: Any) -> Reference:
    return reference(ranks(world, until=steps, **kwargs))


class Play:
    """A drill in which everything goes well, to be changed by a test before it is judged."""

    def __init__(
        self,
        *,
        steps: int = 30,
        world: int = 4,
        saves: Sequence[int] = (10, 20),
        fault: int = 25,
        resumes: int = 20,
        then: Then = Then.RESTARTS,
        sharded: bool = False,
        seed: str = "",
    ) -> None:
        self.reference = undisturbed(steps, world, sharded=sharded)
        job = JobShape(ranks=world, steps=steps, saved_after=tuple(saves))
        self.rehearsal = Rehearsal(name="rank-killed", rank=world // 2, at_step=fault, job=job)
        self.injection = Injection(
            does="SIGKILL",
            act=ACT,
            then=then,
            slugs=("rank-killed",),
            culprits=(world // 2,),
        )
        self.resumes = resumes
        self.fault_at = 1 + fault * SECONDS + 0.01
        self.again_at = self.fault_at + 3
        kwargs: dict[str, Any] = {"world": world, "sharded": sharded, "seed": seed}
        until = steps if then is Then.GOES_ON else fault
        self.first = [rank_attempt(r, until=until, **kwargs) for r in range(world)]
        self.second = [
            rank_attempt(r, base=resumes, until=steps, attempt=1, t=self.again_at, **kwargs)
            for r in range(world)
        ]
        if then is Then.GOES_ON:
            self.second = []
        ended = self.again_at + 100.0
        starts = (-1.0, self.again_at - 1) if then is Then.ENDS else (-1.0,)
        self.observed = Observed(
            attempts=(),
            starts=starts,
            exit_codes=(143, 0) if then is Then.ENDS else (0,),
            injected=self.fault_at,
            ended=ended,
            said=(
                Spoken(
                    t=self.fault_at + 0.5, kind="verdict", slug="rank-killed", ranks=(world // 2,)
                ),
            ),
            saved=tuple(at for at in saves if at <= fault),
        )

    def change(self, **fields: object) -> Play:
        self.observed = msgspec.structs.replace(self.observed, **fields)
        return self

    def change_injection(self, **fields: object) -> Play:
        self.injection = msgspec.structs.replace(self.injection, **fields)
        return self

    def row(self, undamaged: Sequence[Trace] = ()) -> DrillRow:
        return judge(*self._seen(), undamaged)

    def traces(self) -> tuple[Trace, ...]:
        """For another drill of this job to be compared with."""
        case = case_of(*self._seen())
        return resumes_without_damage(case) if case else ()

    def _seen(self) -> tuple[Rehearsal, Injection, Reference, Observed]:
        observed = msgspec.structs.replace(self.observed, attempts=(*self.first, *self.second))
        return self.rehearsal, self.injection, self.reference, observed
