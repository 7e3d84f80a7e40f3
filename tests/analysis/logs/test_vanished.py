"""A rank that lost a connection stays away from later collectives, and is not to blame for it."""

from __future__ import annotations

import pytest

from holdfast import catalogue
from holdfast.analysis.logs import blame, suspects, vanished
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.analysis.scene.scene import Recorder
from holdfast.explain.diagnose import diagnose
from holdfast.findings import Diagnosis
from tests.analysis.logs.patterns.jobs import a_job, dump_observed, lost, stood, timed_out

FAULTS = [entry.fault for entry in catalogue.entries()]
MEMBERS = tuple(range(8))
INSIDE = stood(11, members=MEMBERS)
BEHIND = stood(10, 10, members=MEMBERS)


def answers(job: Wreckage) -> tuple[Diagnosis, ...]:
    return diagnose(job, FAULTS).diagnoses


def wreck(
    *, torn: tuple[int, ...], behind: tuple[int, ...] = (), silent: tuple[int, ...] = (2,)
) -> Wreckage:
    """Ranks are torn out of #10 by closed connections, others are behind by themselves, the rest
    times out in #11; the silent ones left nothing."""
    rest = [rank for rank in MEMBERS if rank not in (*torn, *behind, *silent)]
    return a_job(
        *map(lost, torn),
        *map(dump_observed, (*torn, *behind)),
        *map(timed_out, rest),
        *map(lost, behind),  # as those who had timed out ended
        world=8,
        recorders=dict.fromkeys((*torn, *behind), BEHIND) | dict.fromkeys(rest, INSIDE),
        logs=MEMBERS,
    )


def test_the_silent_one_leads_not_those_that_lost_it() -> None:
    first, second = answers(wreck(torn=(1, 3)))
    assert (first.slug, first.culprit and first.culprit.rank) == ("rank-killed", 2)
    assert set(first.victims) == {*MEMBERS} - {2}
    assert (second.slug, second.culprit and second.culprit.rank) == ("rank-exits-early", 2)


def test_one_that_is_behind_by_itself_is_named_beside_it() -> None:
    first = answers(wreck(torn=(1, 3), behind=(5,)))[0]
    assert (first.slug, first.culprit and first.culprit.rank) == ("rank-killed", 2)
    assert first.also == (5,)


def test_of_several_silent_ranks_none_is_picked() -> None:
    first = answers(wreck(torn=(1, 3), silent=(2, 6)))[0]
    assert first.slug == "rank-killed"
    assert first.culprit is not None
    assert (first.culprit.rank, first.culprit.ranks, first.culprit.one_of) == (None, (2, 6), True)
    assert "one or more of them" in first.reason


def test_a_connection_lost_after_the_dump_excuses_nobody() -> None:
    assert vanished.torn_out(wreck(torn=(1,), behind=(5,))) == {1}


def test_connections_that_close_after_a_timeout_excuse_nobody() -> None:
    job = a_job(
        *map(timed_out, (0, 1, 3)),
        *map(lost, (0, 1, 3)),
        recorders={0: stood(11), 1: stood(11), 2: stood(10, 10), 3: stood(11)},
    )
    assert vanished.torn_out(job) == frozenset()
    assert blame.of(job).census.roots == (2,)


def test_what_an_abort_ended_is_not_over_for_the_others() -> None:
    """1's recorder notes #11 as done, as NCCL's abort ended it: 3 is still in it."""
    aborted = stood(11, 11, members=MEMBERS)
    others = dict.fromkeys((0, 3, 4, 5, 6, 7), INSIDE)
    job = a_job(
        lost(1),
        *map(dump_observed, (1, *others)),
        world=8,
        recorders={1: aborted, **others},
        logs=MEMBERS,
    )
    assert set(blame.of(job).census.standstills[0].waiting) == {*MEMBERS} - {2}
    assert answers(job)[0].also == ()


def test_a_member_that_never_entered_the_group_is_behind_an_abort() -> None:
    aborted = stood(1, 1, members=MEMBERS)
    torn = (0, 1, 3, 4, 6, 7)
    outside = Recorder(collectives=(), entered={}, finished={}, members={"0": MEMBERS})
    job = a_job(
        *map(lost, torn),
        *map(dump_observed, (*torn, 5)),
        world=8,
        recorders={**dict.fromkeys(torn, aborted), 5: outside},
        logs=MEMBERS,
    )
    first = answers(job)[0]
    assert (first.slug, first.culprit and first.culprit.rank) == ("rank-killed", 2)
    assert first.also == (5,)


def test_beside_a_rank_with_another_size_the_one_that_is_gone_is_named() -> None:
    odd = stood(11, shape="[7] Float", members=MEMBERS)
    job = a_job(
        *map(lost, (1, 3)),
        *map(dump_observed, (1, 3)),
        world=8,
        recorders={**dict.fromkeys((0, 1, 3, 4, 5, 6), INSIDE), 7: odd},
        logs=MEMBERS,
    )
    first = answers(job)[0]
    assert (first.slug, first.culprit and first.culprit.rank) == ("collective-mismatch", 7)
    assert first.also == (2,)


@pytest.mark.parametrize("silent", [True, False])
def test_a_circle_of_waits_proves_nothing_once_a_rank_is_gone(silent: bool) -> None:
    """0 waits for 1 in one group, 1 for 0 in another."""

    def crossed(ahead: str, behind: str) -> Recorder:
        return Recorder(
            collectives=stood(11, group=ahead).collectives,
            entered={ahead: 11, behind: 10},
            finished={ahead: 10, behind: 10},
            members={"1": (0, 1), "2": (0, 1)},
        )

    job = a_job(
        *(map(lost, (0, 1, 3)) if silent else map(timed_out, (0, 1, 2, 3))),
        recorders={0: crossed("1", "2"), 1: crossed("2", "1")},
        logs=range(4),
    )
    assert (blame.of(job).census.detour is None) == silent
    suspect = suspects.find(job)
    assert (suspect is not None and suspect.ranks == (2,)) == silent
