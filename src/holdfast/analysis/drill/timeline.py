"""What happened in one drill, in order, and what was trained meanwhile."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.drill.align import AlignedAttempt
from holdfast.analysis.drill.case import Case
from holdfast.analysis.drill.naming import spoken
from holdfast.analysis.drill.outcome import Happened, TrainedAttempt
from holdfast.analysis.drill.trace import Trace
from holdfast.analysis.drill.traces import thinned


def timeline(case: Case) -> tuple[Happened, ...]:
    derived = list(_derived(case))
    kinds = {one.kind for one in derived}
    noted = [one for one in case.observed.happened if one.kind not in kinds]
    return tuple(sorted((*derived, *noted), key=lambda one: one.t))


def _derived(case: Case) -> Iterator[Happened]:
    observed = case.observed
    for number, t in enumerate(observed.starts):
        yield Happened(t=t, what="started again" if number else "started", kind="start")
    yield Happened(t=case.fault_at, what=case.injection.does, kind="fault")
    for said in observed.said:
        yield Happened(t=said.t, what=spoken(said), kind="said")
    if observed.lifted is not None:
        yield Happened(t=observed.lifted, what="the fault was lifted", kind="lifted")
    for number, one in enumerate(case.attempts):
        if (first := one.attempt.first_step) is not None:
            yield Happened(t=first, what=_began(one), kind="resume" if number else "step")
    codes = [code for code in observed.exit_codes if code is not None]
    what = f"ended with exit code {codes[-1]}" if codes else "ended by the drill"
    yield Happened(t=observed.ended, what=what, kind="end")


def _began(one: AlignedAttempt) -> str:
    if one.resumed.by == "nothing before it":
        return "first step"
    at = one.resumed.step
    return "resumed, after which step is not known" if at is None else f"resumed after step {at}"


def trained(case: Case) -> tuple[TrainedAttempt, ...]:
    return tuple(
        trained_attempt(one.trace, one.attempt.began) for one in case.attempts if one.trace
    )


def trained_attempt(trace: Trace, began: float) -> TrainedAttempt:
    taken = [(step, facts) for step, facts in sorted(trace.steps.items()) if step > trace.base]
    points = [(facts.t, step, facts.losses.get(min(facts.ranks))) for step, facts in taken]
    return TrainedAttempt(began=began, points=thinned(points))
