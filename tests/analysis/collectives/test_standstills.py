"""Who stands where, from dumps with pieces missing."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import standstills
from holdfast.analysis.collectives.standstills import WaitCensus
from holdfast.analysis.scene.scene import Collective, Recorder
from tests.analysis.collectives.dumped import START, entry, message, recorder, up_to

ALL = {"0": range(4)}


def take(ranks: Mapping[int, list[Any]], *, world: int = 4, groups: Any = ALL) -> WaitCensus:
    made = {rank: recorder(*entries, groups=groups) for rank, entries in ranks.items()}
    return standstills.take(made, range(world))


def waits(last: int, **changes: Any) -> list[Any]:
    return up_to(last, waits=True, **changes)


# --- one group -----------------------------------------------------------------------------------


def test_who_never_entered_is_the_root() -> None:
    seen = take({0: waits(11), 1: waits(11), 2: up_to(10), 3: waits(11)})
    (place,) = seen.standstills
    assert (place.sequence, place.waiting, place.absent) == (11, (0, 1, 3), (2,))
    assert (place.title, place.last) == ("all_reduce #11", {2: 10})
    assert place.where == "in all_reduce() at train.py:30"
    assert (place.since, place.timeout) == (START + 11, 600.0)
    assert (seen.roots, seen.victims, seen.unseen) == ((2,), (0, 1, 3), ())
    assert seen.last_seen == {2: "all_reduce #10 in all_reduce() at train.py:30"}


def test_who_left_no_dump_is_told_apart_from_who_never_came() -> None:
    seen = take({0: waits(11), 1: waits(11), 3: waits(11)})
    assert (seen.roots, seen.unseen, seen.unread) == ((), (2,), (2,))
    assert seen.standstills[0].unread == (2,)
    both = take({0: waits(11), 1: up_to(10), 3: waits(11)})
    assert (both.roots, both.unseen, both.unread) == ((1,), (), (2,))


def test_the_job_s_size_is_told_by_the_group_when_nothing_else_does() -> None:
    seen = take({0: waits(3), 1: waits(3)}, world=0)
    assert seen.unseen == (2, 3)


def test_a_recorder_that_is_late_to_tell_does_not_hold_the_position_back() -> None:
    """'completed', and not yet put away: seen after a kill on an H200."""
    late = [*up_to(9), entry(10, retired=False), entry(11, done=False)]
    seen = take({0: waits(11), 1: late, 3: late})
    assert seen.standstills[0].sequence == 11
    assert seen.standstills[0].waiting == (0, 1, 3)
    assert seen.unseen == (2,)


def test_a_rank_that_ran_ahead_waits_at_the_first_open_one() -> None:
    ahead = [entry(n, done=n <= 10) for n in range(1, 60)]
    seen = take({0: ahead, 1: ahead, 2: up_to(10), 3: ahead})
    assert (seen.standstills[0].sequence, seen.roots) == (11, (2,))


def test_rings_of_different_length_are_compared_by_number() -> None:
    seen = take(
        {
            0: [entry(n, done=n < 900) for n in range(850, 901)],
            1: [entry(n, done=n < 900) for n in range(100, 901)],
            2: [entry(n) for n in range(870, 900)],
            3: [entry(900, done=False)],
        }
    )
    assert (seen.standstills[0].sequence, seen.roots) == (900, (2,))


def test_gloo_s_entries_are_never_called_completed() -> None:
    gloo: Any = {"profiling_name": "gloo:all_reduce", "state": "scheduled"}
    seen = take(
        {0: waits(5, **gloo), 1: up_to(4, **gloo), 2: waits(5, **gloo), 3: waits(5, **gloo)},
        groups={},
    )
    assert (seen.standstills[0].sequence, seen.roots) == (5, (1,))


def test_an_empty_recorder_among_full_ones_has_entered_nothing() -> None:
    seen = take({0: waits(1), 1: [], 2: waits(1), 3: waits(1)})
    assert (seen.roots, seen.empty) == ((1,), (1,))


@pytest.mark.parametrize("ranks", [{}, {0: [], 1: []}, {r: up_to(10) for r in range(4)}])
def test_nothing_open_is_no_standstill(ranks: dict[int, list[Any]]) -> None:
    seen = take(ranks)
    assert (seen.standstills, seen.roots, seen.unseen, seen.ring) == ((), (), (), ())
    assert seen.unread == tuple(r for r in range(4) if r not in ranks)


def test_when_all_have_come_nobody_is_missing() -> None:
    seen = take({rank: waits(7) for rank in range(4)})
    assert seen.standstills[0].waiting == (0, 1, 2, 3)
    assert (seen.roots, seen.victims, seen.mismatch) == ((), (), None)


# --- who differs ---------------------------------------------------------------------------------


def test_the_majority_tells_who_sent_another_size() -> None:
    """NCCL calls the smaller one completed, and it still counts as entered."""
    odd = [*up_to(10), entry(11, retired=False, input_sizes=[[17]])]
    seen = take({0: waits(11), 1: waits(11), 2: odd, 3: waits(11)})
    assert seen.mismatch is not None
    assert (seen.mismatch.sequence, seen.mismatch.odd) == (11, (2,))
    assert (seen.mismatch.undecided, seen.mismatch.ops_differ) == (False, False)
    assert seen.roots == ()


def test_two_ranks_cannot_tell_who_is_wrong() -> None:
    odd = [*up_to(10), entry(11, done=False, profiling_name="nccl:broadcast")]
    seen = take({0: waits(11), 1: odd}, world=2, groups={"0": range(2)})
    assert seen.mismatch is not None
    assert (seen.mismatch.undecided, seen.mismatch.ops_differ) == (True, True)


# --- several groups ------------------------------------------------------------------------------

PAIRS = {"0": range(4), "a": (0, 1), "b": (2, 3)}


def test_waits_are_followed_from_group_to_group() -> None:
    """0 and 1 wait in the default group for 2, which waits in its pair for 3."""
    seen = take(
        {
            0: [*up_to(5, "a"), *waits(9)],
            1: [*up_to(5, "a"), *waits(9)],
            2: [*up_to(8), *up_to(6, "b", waits=True)],
            3: [*up_to(8), *up_to(5, "b")],
        },
        groups=PAIRS,
    )
    assert (seen.roots, seen.victims) == ((3,), (0, 1, 2))
    assert {s.group: s.absent for s in seen.standstills} == {"0": (2, 3), "b": (3,)}
    place = seen.of(2)
    assert place is not None
    assert place.title == "all_reduce #6 of group b"


def test_two_ranks_that_wait_for_each_other_are_a_ring() -> None:
    seen = take(
        {0: [*up_to(3, "b"), *waits(4)], 1: [*up_to(3), *up_to(4, "b", waits=True)]},
        world=2,
        groups={"0": (0, 1), "b": (0, 1)},
    )
    assert (seen.ring, seen.roots, seen.victims) == ((0, 1), (), ())
    assert seen.last_seen.keys() == {0, 1}


def test_parts_of_a_split_group_share_a_name() -> None:
    made = {
        rank: recorder(
            *(up_to(5, "1") if rank == 3 else up_to(6, "1", waits=rank == 2)),
            groups={"1": (0, 1) if rank < 2 else (2, 3)},
        )
        for rank in range(4)
    }
    seen = standstills.take(made, range(4))
    assert [(s.waiting, s.absent) for s in seen.standstills] == [((2,), (3,))]
    assert seen.roots == (3,)


def test_of_a_small_gloo_group_only_those_seen_in_it_are_missed() -> None:
    gloo: Any = {"profiling_name": "gloo:all_reduce"}
    seen = take(
        {0: up_to(2, "x", waits=True, **gloo), 1: up_to(1, "x", **gloo), 2: up_to(7), 3: []},
        groups={},
        world=5,
    )
    (place,) = [s for s in seen.standstills if s.group == "x"]
    assert (place.absent, place.unread, place.members_known) == ((1,), (4,), False)
    assert seen.roots == (1,)


@pytest.mark.parametrize(("came", "near"), [(4, (4,)), (5, ())])
def test_the_partner_of_a_lost_dump_may_have_left_one_out(came: int, near: tuple[int, ...]) -> None:
    """Gloo lists no members: that 4 has a partner, the pairs beside it show; it is 5, whose dump
    is lost and which waits for 4."""
    gloo: Any = {"profiling_name": "gloo:all_reduce"}

    def of_pair(pair: str, last: int) -> list[Any]:
        return [*up_to(last, pair, **gloo), *up_to(2, waits=True, **gloo)]

    pairs = {rank: of_pair("xy"[rank // 2], 5) for rank in range(4)}
    seen = take({**pairs, 4: of_pair("z", came)}, groups={}, world=6)
    assert (seen.unseen, seen.near) == ((5,), near)


# --- messages ------------------------------------------------------------------------------------

STAGES = {"pp": (4, 5, 6)}


def test_a_receive_that_nobody_sends_leads_to_the_sender() -> None:
    """Numbers in names are those of the group: its 1 is rank 5."""
    made = {
        4: recorder(message(1, "send 0->1", "pp"), groups=STAGES),
        5: recorder(
            message(1, "recv 1<-0", "pp"), message(2, "recv 1<-0", "pp", done=False), groups=STAGES
        ),
        6: recorder(message(1, "recv 2<-1", "pp", done=False), groups=STAGES),
    }
    seen = standstills.take(made)
    assert [(m.rank, m.way, m.peer) for m in seen.messages] == [(5, "recv", 4), (6, "recv", 5)]
    assert (seen.roots, seen.victims) == ((4,), (5, 6))


def test_a_message_both_sides_are_in_waits_for_nobody() -> None:
    made = {
        0: recorder(message(1, "send 0->1", done=False), groups=ALL),
        1: recorder(message(1, "recv 1<-0", done=False), groups=ALL),
    }
    assert standstills.take(made).messages == ()


def test_two_sends_that_meet_are_a_ring() -> None:
    made = {
        0: recorder(message(1, "send 0->1", done=False), groups={"0": (0, 1)}),
        1: recorder(message(1, "send 1->0", done=False), groups={"0": (0, 1)}),
    }
    assert standstills.take(made).ring == (0, 1)


# --- anything ------------------------------------------------------------------------------------

collectives = st.builds(
    Collective,
    group=st.sampled_from(["0", "a", "b"]),
    sequence=st.integers(0, 6),
    op=st.sampled_from(["all_reduce", "broadcast", "send 0->1", "recv 9<-3", ""]),
    backend=st.just("nccl"),
    shape=st.sampled_from(["[4] Float", "[8] Float", ""]),
    finished=st.booleans(),
    created=st.sampled_from([0.0, 1.0, 2.0]),
    timeout=st.just(600.0),
)
positions = st.dictionaries(st.sampled_from(["0", "a", "b"]), st.integers(0, 6))
recorders = st.builds(
    Recorder,
    collectives=st.lists(collectives, max_size=6).map(tuple),
    entered=positions,
    finished=positions,
    members=st.dictionaries(
        st.sampled_from(["a", "b"]), st.lists(st.integers(0, 5), max_size=3).map(tuple)
    ),
    messages=st.lists(collectives, max_size=3).map(tuple),
)


@given(st.dictionaries(st.integers(0, 5), recorders, max_size=5), st.sets(st.integers(0, 7)))
def test_any_recorders_give_a_census(found: dict[int, Recorder], members: set[int]) -> None:
    seen = standstills.take(found, members)
    assert set(seen.unread).isdisjoint(found)
    assert set(seen.roots) <= found.keys()
    assert set(seen.unseen) <= set(seen.unread)
    for place in seen.standstills:
        assert place.waiting
        assert set(place.waiting).isdisjoint(place.absent)


@given(st.integers(2, 6), st.data())
def test_whatever_is_missing_the_innocent_are_not_blamed(world: int, data: st.DataObject) -> None:
    culprit = data.draw(st.integers(0, world - 1))
    found = data.draw(st.sets(st.integers(0, world - 1), min_size=1))
    ranks = {r: up_to(4) if r == culprit else waits(5) for r in found}
    seen = take(ranks, world=world, groups={"0": range(world)})
    assert set(seen.roots) <= {culprit}
    if culprit in found and len(found) > 1:
        assert seen.roots == (culprit,)
    elif culprit not in found:
        assert culprit in seen.unseen
