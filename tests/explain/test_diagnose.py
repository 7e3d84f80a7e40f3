"""How the answers of the faults compete."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Exit, InputSource, LogLine, Sighting, Wreckage
from holdfast.explain.diagnose import RUNNER_UP, SHOWN, diagnose
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Grade


def fault(number: int, answer: Callable[[Wreckage], Diagnosis | None]) -> Fault:
    made = Fault(code=f"HOLD9{number:02d}", slug=f"fault-{number}")
    made.explain(answer)
    return made


def saying(
    number: int, confidence: float, *, order: int = 0, line: int = 0, rank: int | None = None
) -> Fault:
    evidence = (Evidence(quote="x", source="a.log", line=line),) if line else ()
    said = Diagnosis(
        code=f"HOLD9{number:02d}",
        slug=f"fault-{number}",
        confidence=confidence,
        culprit=Culprit(rank=rank) if rank is not None else None,
        reason="because",
        evidence=evidence,
        order=order,
    )
    return fault(number, lambda _: said)


def sighting(role: Role, *, rank: int | None = None, number: int = 1) -> Sighting:
    line = LogLine(text=f"{role.value} text", source="a.log", number=number, rank=rank)
    return Sighting(pattern="s", slug="", role=role, line=line, order=number)


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        ([saying(1, 0.4), saying(2, 0.9)], [("fault-2", 0.9), ("fault-1", 0.4)]),
        # Two that are sure: the earlier one, though the other one is surer.
        (
            [saying(1, 0.95, order=9, line=9), saying(2, 0.9, order=3, line=3)],
            [("fault-2", 0.9), ("fault-1", RUNNER_UP)],
        ),
        # Both read the same line: two names of one thing.
        (
            [saying(1, 0.9, order=3, line=3), saying(2, 0.85, order=3, line=3)],
            [("fault-1", 0.9), ("fault-2", 0.85)],
        ),
        # None is sure: as they are.
        ([saying(1, 0.6), saying(2, 0.7)], [("fault-2", 0.7), ("fault-1", 0.6)]),
        ([saying(1, 0.05)], []),
    ],
)
def test_the_order_of_answers(faults: list[Fault], expected: list[tuple[str, float]]) -> None:
    report = diagnose(Wreckage(), faults)
    assert [(d.slug, d.confidence) for d in report.diagnoses] == expected


@given(st.lists(st.floats(0, 1), max_size=12), st.lists(st.integers(0, 50), min_size=12))
def test_only_one_line_can_be_the_sure_cause(sure: list[float], orders: list[int]) -> None:
    faults = [saying(n, c, order=orders[n], line=n + 1) for n, c in enumerate(sure)]
    answers = diagnose(Wreckage(), faults).diagnoses
    assert len(answers) <= SHOWN
    assert sum(d.grade is Grade.CERTAIN for d in answers) <= 1
    assert all(a.confidence >= b.confidence for a, b in pairwise(answers))
    assert bool(answers) == any(c >= 0.1 for c in sure)


def test_a_broken_face_hides_no_other_and_is_reported() -> None:
    def broken(_: Wreckage) -> Diagnosis | None:
        raise KeyError("rank")

    report = diagnose(Wreckage(), [fault(1, broken), saying(2, 0.9)])
    assert [d.slug for d in report.diagnoses] == ["fault-2"]
    assert report.remarks == ("a bug in holdfast, fault-1 (broken): KeyError: 'rank'",)


def test_a_healthy_run_gives_nothing() -> None:
    line = LogLine(text="done", source="a.log", number=1)
    left = Exit(code=0, line=line, rank=0)
    healthy = Wreckage(sightings=(sighting(Role.CONTEXT), sighting(Role.ADVICE)), exits=(left,))
    report = diagnose(healthy, [])
    assert (report.diagnoses, report.failed, report.anomalies) == ((), False, ())


def test_an_unknown_failure_shows_the_earliest_trouble_and_blames_no_rank() -> None:
    seen = (
        sighting(Role.CASCADE, rank=0, number=3),
        sighting(Role.ROOT, rank=1, number=7),
        sighting(Role.CASCADE, rank=1, number=5),
    )
    report = diagnose(Wreckage(sightings=seen), [])
    assert report.failed
    assert not report.diagnoses
    assert [(e.rank, e.quote) for e in report.anomalies] == [(1, "root text"), (0, "cascade text")]


def test_the_first_answer_says_which_lines_are_fallout() -> None:
    seen = tuple(sighting(Role.CASCADE, rank=rank, number=rank + 1) for rank in (0, 1, 2, 3))
    (found,) = diagnose(Wreckage(sightings=seen), [saying(1, 0.9, rank=2)]).diagnoses
    assert found.victims == (0, 1, 3)
    assert "of ranks 0-1,3: consequences" in found.ruled_out[0]


def test_what_could_not_be_read_is_reported() -> None:
    unread = InputSource(name="rank3.log.zst", kind="log", problem="needs zstd")
    assert diagnose(Wreckage(sources=(unread,)), []).remarks == ("rank3.log.zst: needs zstd",)
