"""What happened in one drill, in order."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast.analysis.drill.case import Case
from holdfast.analysis.drill.naming import spoken
from holdfast.analysis.drill.outcome import Happened


def timeline(case: Case) -> tuple[Happened, ...]:
    return tuple(sorted((*_derived(case), *case.observed.happened), key=lambda one: one.t))


def _derived(case: Case) -> Iterator[Happened]:
    observed = case.observed
    for number, t in enumerate(observed.starts):
        yield Happened(t=t, what="started again" if number else "started", kind="start")
    yield Happened(t=case.fault_at, what=case.injection.does, kind="fault")
    for one in observed.said:
        yield Happened(t=one.t, what=spoken(one), kind="said")
    if observed.lifted is not None:
        yield Happened(t=observed.lifted, what="the fault was lifted", kind="lifted")
    for number, aligned in enumerate(case.attempts):
        first = aligned.attempt.first_step
        if first is None:
            continue
        if number == 0:
            yield Happened(t=first, what="first step", kind="step")
        else:
            at = aligned.resumed.step
            step = "an unknown step" if at is None else f"step {at}"
            yield Happened(t=first, what=f"resumed at {step}", kind="resume")
    codes = [code for code in observed.exit_codes if code is not None]
    what = f"ended, exit code {codes[-1]}" if codes else "ended by the drill"
    yield Happened(t=observed.ended, what=what, kind="end")
