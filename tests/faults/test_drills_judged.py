"""Every drill of every fault, judged: what must become of the job is kept when it does, and broken
when nothing is said or the wrong rank is blamed."""

from __future__ import annotations

import msgspec
import pytest

from holdfast import catalogue
from holdfast.analysis.drill import bounds, choose, naming
from holdfast.analysis.drill.injection import Injection, Then
from holdfast.analysis.drill.outcome import Spoken
from holdfast.analysis.drill.rehearsal import DrillPlan, JobShape
from holdfast.fault import Drill, Fault
from tests.analysis.drill.jobs import Play, ranks

DRILLS = [(entry.fault, drill) for entry in catalogue.entries() for drill in entry.fault.drills]
SLUGS = {entry.fault.slug for entry in catalogue.entries()}
replace = msgspec.structs.replace


def as_it_must_be(fault: Fault, drill: Drill) -> Play | None:
    """A job with hosts and GPUs on which the drill went as well as it can; None where it does not
    apply to it."""
    job = JobShape(
        ranks=4, steps=30, saved_after=(10, 20), hosts=("alpha", "bravo"), on_gpu=True, patience=4.0
    )
    rehearsal = choose.rehearsal(DrillPlan(fault=drill.name), drill, job)
    injection = fault.ask_drill(drill, rehearsal)
    if not isinstance(injection, Injection):
        return None
    then = injection.then if injection.then is not Then.RECOVERS else Then.RESTARTS
    costs = injection.costs_saves
    at_start = rehearsal.at_step == 0
    play = Play(fault=rehearsal.at_step or 25, resumes=10 if costs else 20, then=then)
    play.rehearsal, play.injection = rehearsal, injection
    world = injection.world or 4
    if at_start or then is Then.REFUSES:
        play.change(injected=-0.5, saved=())
        play.first = ranks(until=30) if then is Then.GOES_ON else []
        play.second = [] if then is Then.GOES_ON else ranks(t=play.again_at, attempt=1)
    if then in (Then.REFUSES, Then.GIVES_UP, Then.ENDS):
        play.change(starts=(-1.0, play.again_at - 1), exit_codes=(1, 0))
    if world != 4:
        return None  # compared in its own test: tests/analysis/drill/test_compare.py
    injected = play.observed.injected or 0.0
    said = Spoken(
        t=injected + 1,
        kind="verdict",
        slug=injection.slugs[0],
        ranks=injection.culprits or (),
        hosts=injection.hosts[:1] if not injection.culprits else (),
    )
    return play.change(said=(said,))


@pytest.mark.parametrize(("fault", "drill"), DRILLS, ids=[drill.name for _, drill in DRILLS])
def test_what_must_become_of_the_job_is_kept(fault: Fault, drill: Drill) -> None:
    play = as_it_must_be(fault, drill)
    if play is None:
        return
    row = play.row()
    assert (row.status, row.broken, row.unchecked) == ("kept", (), ())
    assert row.named_right
    said = play.observed.said[0]
    assert play.change(said=()).row().status == "broken"
    innocent = {0, 1, 2, 3} - set(said.ranks)
    if said.ranks and innocent:
        blamed = play.change(said=(replace(said, ranks=(min(innocent),), hosts=()),)).row()
        assert (blamed.status, blamed.named_right) == ("broken", False)


def test_slugs_that_bounds_and_names_rest_on_exist() -> None:
    assert bounds.slugs() <= SLUGS
    assert naming.IMPLIED <= SLUGS
