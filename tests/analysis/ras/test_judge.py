"""Which ranks are behind, by what RAS counts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.ras import judge
from tests.analysis.ras.answers import answer, launched
from tests.system.ras_server import FakeCommunicator, FakeJob, FakeRank, job


@pytest.mark.parametrize(
    ("counts", "odd", "ranks"),
    [
        ((7, 7, 6, 7), "behind", [2]),
        ((7, 6, 6, 7, 7), "behind", [1, 2]),
        ((8, 7, 7, 7), "ahead", [0]),
        ((7, 6), "", []),
        ((7, 7, 6, 6), "", []),
    ],
)
@pytest.mark.parametrize("text", [False, True])
def test_the_smaller_part_is_odd(
    counts: tuple[int, ...], odd: str, ranks: list[int], text: bool
) -> None:
    (gap,) = judge.gaps(answer(job(*counts), text=text))
    assert gap.odd == odd
    assert (gap.most, gap.least) == (max(counts), min(counts))
    named = {"behind": gap.behind, "ahead": gap.ahead}.get(odd, ())
    assert [one.rank for one in named] == ranks


def test_equal_counts_are_no_gap() -> None:
    assert judge.gaps(launched(5, 5, 5)) == ()
    assert judge.gaps(launched(5, 5, 0, silent=[2])) == ()  # what it launched is not known


def test_a_group_that_is_torn_down_is_no_gap() -> None:
    leaving = FakeRank(1, 601, finalizing=True, counts={"AllReduce": 6})
    ranks = (FakeRank(0, 600, counts={"AllReduce": 7}), leaving)
    assert judge.gaps(answer(FakeJob(communicators=(FakeCommunicator(ranks),)))) == ()


def test_ranks_that_called_different_collectives_are_crossed() -> None:
    ranks = [
        FakeRank(n, 600 + n, counts={"AllReduce": 7 + (n == 2), "Broadcast": 3 - (n == 2)})
        for n in range(4)
    ]
    (gap,) = judge.gaps(answer(FakeJob(communicators=(FakeCommunicator(ranks),))))
    assert [[one.rank for one in part] for part in gap.crossed] == [[2], [0, 1, 3]]
    assert gap.odd == ""


def test_a_gap_lasts_only_if_nothing_changed() -> None:
    stuck = launched(7, 7, 6, at=1.0)
    assert judge.lasting(stuck, launched(7, 7, 6, at=3.0))
    assert not judge.lasting(stuck, launched(8, 8, 7, at=3.0))  # it moves, one behind as always
    assert not judge.lasting(stuck, launched(7, 7, 6, at=1.5))  # too soon to tell
    assert not judge.lasting(launched(7, 7, 6), launched(7, 7, 6))  # of no known time


def test_whether_anything_moved() -> None:
    assert judge.moved(launched(7, 7), launched(7, 8)) is True
    assert judge.moved(launched(7, 7), launched(7, 7)) is False
    assert judge.moved(launched(7, 7), answer(job(9, 9), text=True)) is None


def test_ranks_of_the_job_are_known_by_the_one_group_of_all() -> None:
    assert judge.numbers(launched(1, 1)) == {("192.0.2.2", 600): 0, ("192.0.2.2", 601): 1}
    halves = [
        FakeCommunicator((FakeRank(0, 600), FakeRank(1, 601)), hash=1),
        FakeCommunicator((FakeRank(0, 602), FakeRank(1, 603)), hash=2),
    ]
    assert judge.numbers(answer(FakeJob(communicators=halves))) == {}
    part = [halves[0], FakeCommunicator((FakeRank(0, 602),), hash=3)]
    assert judge.numbers(answer(FakeJob(communicators=part))) == {}  # not of all processes


def test_a_whole_host_is_silent_only_where_others_answer() -> None:
    hosts = ["a", "a", "b", "b"]
    assert judge.silent_hosts(launched(1, 1, 1, 1, silent=[2, 3], hosts=hosts)) == ("b",)
    assert judge.silent_hosts(launched(1, 1, 1, 1, silent=[3], hosts=hosts)) == ()
    assert judge.silent_hosts(launched(1, 1, 1, 1, silent=[0, 1, 2, 3], hosts=hosts)) == ()


@given(st.lists(st.integers(0, 3), min_size=1, max_size=9))
def test_a_gap_never_blames_the_majority(counts: list[int]) -> None:
    found = judge.gaps(launched(*counts))
    assert bool(found) == (len(set(counts)) > 1)
    for gap in found:
        assert gap.count_behind + gap.count_ahead == len(counts)
        odd = {"behind": gap.count_behind, "ahead": gap.count_ahead}.get(gap.odd, 0)
        assert odd * 2 < len(counts)
