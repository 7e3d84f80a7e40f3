"""Every drill of every fault, asked with jobs of any size: an injection that can be judged, or why
there is none."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.drill.injection import CannotInject, Injection
from holdfast.analysis.drill.rehearsal import JobShape, Rehearsal
from holdfast.fault import Drill, Fault

DRILLS = [(entry.fault, drill) for entry in catalogue.entries() for drill in entry.fault.drills]
SLUGS = {entry.fault.slug for entry in catalogue.entries()}
QUICK = 5


def names() -> list[str]:
    return [drill.name for _, drill in DRILLS]


@st.composite
def rehearsals(draw: st.DrawFn, name: str) -> Rehearsal:
    hosts = draw(st.sampled_from([("",), ("alpha", "bravo"), ("alpha", "bravo", "carol", "delta")]))
    ranks = len(hosts) * draw(st.integers(1, 4))
    steps = draw(st.integers(1, 200))
    saved = draw(st.sets(st.integers(1, steps), max_size=8))
    job = JobShape(
        ranks=ranks,
        steps=steps,
        saved_after=tuple(sorted(saved)),
        hosts=hosts,
        on_gpu=draw(st.booleans()),
        patience=draw(st.floats(1, 60)),
    )
    return Rehearsal(
        name=name,
        rank=draw(st.integers(0, ranks - 1)),
        at_step=draw(st.integers(0, steps)),
        job=job,
    )


@pytest.mark.parametrize(("fault", "drill"), DRILLS, ids=names())
@given(data=st.data())
def test_says_what_it_does_and_what_must_become_of_it(
    fault: Fault, drill: Drill, data: st.DataObject
) -> None:
    rehearsal = data.draw(rehearsals(drill.name))
    answer = fault.ask_drill(drill, rehearsal)
    if isinstance(answer, CannotInject):
        assert answer.why
        assert "bug in holdfast" not in answer.why
        return
    assert isinstance(answer, Injection)
    assert answer.does
    assert set(answer.slugs) <= SLUGS
    assert set(answer.beside) | set(answer.blameless) <= SLUGS
    assert answer.culprits is not None
    assert set(answer.culprits) <= set(range(rehearsal.job.ranks))
    assert set(answer.hosts) <= set(rehearsal.job.hosts)


def test_names_are_unique() -> None:
    assert len(set(names())) == len(names())


def test_quick_is_a_handful() -> None:
    assert sum(drill.quick for _, drill in DRILLS) <= QUICK
