"""The job as it runs undisturbed: what every drill is compared with."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from statistics import median
from typing import NamedTuple

from holdfast import text
from holdfast.analysis.drill.job_attempts import job_attempts
from holdfast.analysis.drill.records import RankAttempt
from holdfast.analysis.drill.rehearsal import JobShape
from holdfast.analysis.drill.trace import Trace, trace


class Reference(NamedTuple):
    trace: Trace
    optimizer_start: int = 0
    """steps that the optimizer had counted before the first one: more than 0 where the script
    begins with what another job trained"""
    on_gpu: bool = False
    problems: tuple[str, ...] = ()
    """why it is of little use as a reference, in a sentence each"""

    @property
    def steps(self) -> int:
        return self.trace.last

    @property
    def ranks(self) -> int:
        return self.trace.world

    @property
    def seconds_per_step(self) -> float:
        """Without the first step, which compiles and warms up."""
        times = [facts.t for step, facts in sorted(self.trace.steps.items()) if step > 0]
        return median(map(operator.sub, times[1:], times)) if times[1:] else 0.0

    def shape(
        self,
        *,
        saved_after: Iterable[int] = (),
        hosts: Sequence[str] = ("",),
        patience: float = 8.0,
        runner: str = "holdfast",
    ) -> JobShape:
        return JobShape(
            ranks=self.ranks,
            steps=self.steps,
            saved_after=tuple(sorted(set(saved_after))),
            hosts=tuple(hosts),
            on_gpu=self.on_gpu,
            patience=patience,
            runner=runner,
            seconds_per_step=self.seconds_per_step,
        )


def reference(found: Sequence[RankAttempt]) -> Reference:
    attempts = [one for one in job_attempts(found) if one.taken]
    if not attempts:
        ranks = max((one.began.world for one in found), default=0)
        seen = "no optimizer step was seen in any rank" if found else "no rank imported torch"
        return Reference(Trace(ranks, 0, {}), problems=(seen,))
    whole = attempts[0]
    starts = [one.start for one in whole.ranks.values() if one.start]
    counted = {start.optimizer_step for start in starts}
    problems = []
    if attempts[1:]:
        problems.append("the undisturbed job was restarted")
    if absent := {rank for rank in range(whole.world)
                  if rank not in whole.ranks or not whole.ranks[rank].steps}:  # fmt: skip
        problems.append(f"no optimizer step was seen in {text.ranks(absent)}")
    return Reference(
        trace(whole, 0),
        optimizer_start=(counted.pop() or 0) if len(counted) == 1 else 0,
        on_gpu=bool(starts) and all(start.on_gpu for start in starts),
        problems=tuple(problems),
    )
