"""Which rank is blamed when the loudest lines come from ranks that waited."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.logs import blame, disagreement, fingerprints, own_errors, suspects
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.explain.diagnose import diagnose
from holdfast.findings import Grade
from tests.analysis.logs.patterns.jobs import (
    HEALTHY,
    RESET,
    STUCK,
    VANISHED,
    a_job,
    a_raise,
    an_exit,
    differ,
    dump_observed,
    lost,
    stood,
    timed_out,
)
from tests.run.scenes import IN_BACKWARD, IN_BARRIER, IN_SLEEP

FAULTS = [entry.fault for entry in catalogue.entries()]


def leading(wreckage: Wreckage) -> tuple[str, int | None]:
    """The first answer of all faults together, and the rank it blames."""
    first = diagnose(wreckage, FAULTS).diagnoses[0]
    return first.slug, first.culprit.rank if first.culprit else None


@pytest.mark.parametrize(
    ("job", "slug", "rank"),
    [
        (STUCK, "rank-stuck", 2),
        (VANISHED, "rank-frozen", 2),
        (RESET, "rank-killed", 2),
        (a_job(*map(lost, (0, 1, 3)), raised=[a_raise(2, "ValueError")]), "python-exception", 2),
        (a_job(*map(timed_out, (0, 1)), exits=[an_exit(2, -9, first=True)]), "rank-killed", 2),
        (a_job(timed_out(1), exits=[an_exit(1, -6), an_exit(0, -15)]), "rank-stuck", None),
        (a_job(*map(lost, (0, 1, 3)), finished=[2]), "rank-exits-early", 2),
        (a_job("Received 1 death signal, shutting down workers"), "sighup-terminal", None),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_right_answer_leads(job: Wreckage, slug: str, rank: int | None) -> None:
    assert leading(job) == (slug, rank)


def test_a_healthy_job_is_left_alone() -> None:
    assert diagnose(HEALTHY, FAULTS).diagnoses == ()
    assert suspects.find(HEALTHY) is None


def test_runners_up_are_in_the_order_of_what_silence_means() -> None:
    slugs = [one.slug for one in diagnose(VANISHED, FAULTS).diagnoses]
    assert slugs == ["rank-frozen", "rank-killed"]  # one that hangs would answer for a dump


def test_what_is_missing_is_said() -> None:
    unknown = " | ".join(diagnose(VANISHED, FAULTS).diagnoses[0].unknown)
    assert "no flight-recorder dump of rank 2" in unknown
    assert "no kernel log was given" in unknown


# --- own trouble ---------------------------------------------------------------------------------


def test_what_comes_after_a_lost_peer_is_fallout() -> None:
    late = a_job(lost(1), raised=[a_raise(1, "ValueError", order=9)])
    assert own_errors.troubles(late) == ()
    early = a_job(lost(1), lost(1), raised=[a_raise(1, "ValueError", order=1)])
    assert [t.rank for t in own_errors.troubles(early)] == [1]


@pytest.mark.parametrize("kind", ["ChildFailedError", "KeyboardInterrupt", "a.b.SignalException"])
def test_a_launcher_or_a_request_to_end_is_no_cause(kind: str) -> None:
    assert not own_errors.tells_a_cause(a_raise(0, kind))


def test_an_abort_after_a_timeout_is_the_watchdogs() -> None:
    assert blame.of(a_job(timed_out(1), exits=[an_exit(1, -6)])).ended == ()
    assert [e.rank for e in blame.of(a_job(exits=[an_exit(1, -6)])).ended] == [1]


def test_half_the_job_is_not_silent() -> None:
    assert blame.of(a_job(*map(timed_out, (0, 1)))).silent == ()
    assert blame.of(a_job(*map(timed_out, (0, 1, 3)))).silent == (2,)


def test_a_file_that_was_not_given_is_no_silence() -> None:
    waiting = [timed_out(r) for r in (0, 1, 3)]
    assert suspects.find(a_job(*waiting, logs=(0, 1, 3))) is None
    together = suspects.find(a_job(*waiting))
    assert together is not None
    assert (together.ranks, together.how) == ((2,), "unheard")


def test_a_watchdogs_count_may_lag_so_only_a_dump_makes_it_sure() -> None:
    stands = {0: stood(11), 1: stood(11), 2: stood(10, 10), 3: stood(11)}
    told = suspects.find(a_job(*map(timed_out, (0, 1, 3)), recorders=stands, dumped=(0, 1, 3)))
    dumped = suspects.find(a_job(*map(timed_out, (0, 1, 3)), recorders=stands))
    assert told is not None
    assert dumped is not None
    assert (told.ranks, told.whole) == ((2,), False)
    assert (dumped.ranks, dumped.whole) == ((2,), True)


def test_everybody_inside_needs_a_count() -> None:
    inside = {0: stood(11), 1: stood(11)}
    assert blame.of(a_job(recorders=inside, world=2)).all_inside
    assert not blame.of(a_job(recorders=inside, world=None)).all_inside


# --- who differs ---------------------------------------------------------------------------------


@given(st.lists(st.lists(st.integers(0, 9), min_size=1, max_size=5), min_size=1, max_size=4))
def test_a_minority_is_never_the_largest_side(sides: list[list[int]]) -> None:
    odd = disagreement.minority(sides)
    largest = max(map(len, sides))
    assert len([s for s in sides if len(s) == largest]) == 1 or odd == ()
    assert len(odd) == sum(map(len, sides)) - largest or odd == ()


def test_stuck_far_back_in_another_operation_is_a_difference_though_it_asked_for_more() -> None:
    there = stood(12, 11, op="_all_gather_base")
    behind = {0: stood(12, 7, op="all_reduce"), 1: there}
    found = disagreement.of_counts(behind, partial=frozenset(behind))
    assert found is not None
    assert (found.what, found.odd) == ("count", ())
    assert disagreement.of_counts({0: stood(12, 10, op="all_reduce"), 1: there}) is None
    same = stood(12, 7, op="_all_gather_base")  # it has asked for the very one the others are in
    assert disagreement.of_counts({0: same, 1: there}) is None


def test_what_one_had_asked_for_is_no_difference_of_count() -> None:
    """It had entered all of them, so it only was not done."""
    assert disagreement.of_counts({0: stood(12, 8), 1: stood(12, 11)}) is None
    behind = {0: stood(9, 8), 1: stood(12, 11), 2: stood(12, 11)}
    found = disagreement.of_counts(behind, partial=frozenset(behind))
    assert found is not None
    assert found.odd == (0,)
    assert disagreement.of_counts(behind) is None  # by dumps: it has noted the end late


@given(st.text(max_size=300))
def test_any_text_after_the_anchor_is_borne(text: str) -> None:
    job = a_job("Detected mismatch between collectives on ranks. Rank 0 is running " + text)
    found = fingerprints.compare(job.sightings)
    assert found is None or set(found.odd) <= set(found.ranks)
    assert fingerprints.same_everywhere(job.sightings) in (True, False)


def test_three_lines_make_a_majority() -> None:
    job = a_job(
        differ("OpType=ALLREDUCE, TensorShape=[4]", "OpType=BARRIER"),
        differ("OpType=BARRIER", "OpType=ALLREDUCE, TensorShape=[4]", ranks=(1, 0)),
        differ("OpType=BARRIER", "OpType=ALLREDUCE, TensorShape=[4]", ranks=(2, 0)),
    )
    found = fingerprints.compare(s for s in job.sightings if "own" in s.fields)
    assert found is not None
    assert (found.what, found.odd) == ("op", (0,))


# --- pieces missing ------------------------------------------------------------------------------


class Broken(NamedTuple):
    """A job with one culprit, some pieces of its wreckage taken away."""

    job: Wreckage
    culprit: int
    slugs: frozenset[str]
    """answers that are right"""


_KINDS = {
    "stuck": {"rank-stuck"},
    "killed": {"rank-killed"},
    "raised": {"python-exception"},
    "size": {"collective-mismatch", "rank-conditional-code"},
    "op": {"collective-mismatch", "rank-conditional-code", "uneven-inputs"},
    "crashed": {"native-crash"},
}


@st.composite
def broken(draw: st.DrawFn) -> Broken:
    kind = draw(st.sampled_from(sorted(_KINDS)))
    world = draw(st.integers(3, 6))
    culprit = draw(st.integers(0, world - 1))
    others = [rank for rank in range(world) if rank != culprit]
    ends = kind in ("killed", "raised", "crashed")
    told = [lost(r) for r in others] if ends else [timed_out(r) for r in others]
    told += [dump_observed(r) for r in others]
    recorders = {rank: stood(11) for rank in others}
    if kind == "stuck":
        recorders[culprit] = stood(10, 10)
        told.append(dump_observed(culprit))
    if kind in ("size", "op"):
        told.append(timed_out(culprit))
        recorders[culprit] = (
            stood(11, shape="[8] Float") if kind == "size" else stood(11, op="broadcast")
        )
    raised = [a_raise(r, "RuntimeError", order=99, consequence="lost-peer") for r in others]
    raised += [a_raise(culprit, "ValueError", "bad batch")] if kind == "raised" else []
    code = {"killed": -9, "crashed": -11, "raised": 1}.get(kind, -6)
    exits = [an_exit(r, -6) for r in others]
    exits.append(an_exit(culprit, code, first=ends))

    def keep(pieces: list[str]) -> list[str]:
        return [piece for piece in pieces if draw(st.integers(0, 3))]

    job = a_job(
        *keep(told),
        world=draw(st.sampled_from([None, world])),
        recorders={r: recorder for r, recorder in recorders.items() if draw(st.booleans())},
        logs=[rank for rank in range(world) if draw(st.booleans())],
        raised=[one for one in raised if draw(st.booleans())],
        exits=exits if draw(st.booleans()) else [],
    )
    return Broken(job, culprit, frozenset(_KINDS[kind]))


@settings(max_examples=300, deadline=None)
@given(broken())
def test_never_sure_and_wrong(case: Broken) -> None:
    for answer in diagnose(case.job, FAULTS).diagnoses:
        if answer.grade is Grade.CERTAIN:
            assert answer.slug in case.slugs, answer
            assert answer.culprit is None or answer.culprit.rank in (None, case.culprit), answer


def test_each_wreckage_keeps_its_own_answer() -> None:
    one, other = a_job(timed_out(1)), a_job(timed_out(2))
    first = blame.of(one)
    assert blame.of(other).waited == {2}
    assert blame.of(one) is first
    assert first.waited == {1}


def test_threads_that_ask_at_once_get_one_answer() -> None:
    job = a_job(timed_out(1))
    together = threading.Barrier(4)

    def ask(_: int) -> object:
        together.wait(10)
        return blame.of(job)

    with ThreadPoolExecutor(4) as pool:
        answers = list(pool.map(ask, range(4)))
    assert all(answer is answers[0] for answer in answers)


def test_both_sides_lines_are_told_while_they_are_still_in_that_collective() -> None:
    ahead = stood(12, 10)  # rank 1 has entered #12 since: its stack is of that one
    wreck = a_job(
        world=3,
        recorders={0: stood(11, 10, op="barrier"), 1: ahead, 2: stood(11, 10)},
        stacks={0: IN_BARRIER, 1: IN_SLEEP, 2: IN_BACKWARD},
    )
    found = blame.of(wreck).disagreement
    assert found is not None
    assert found.lines == {0: "in train() at train.py:44", 2: "in backward() at train.py:30"}
    assert "rank 0 barrier" in found.words()
    assert "called in train() at train.py:44" in found.words()
    assert "called in backward() at train.py:30" in found.words()
