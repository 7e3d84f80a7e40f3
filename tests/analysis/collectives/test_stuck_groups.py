"""Several groups stuck: the culprits are named, or a set that holds them and is called one."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast import catalogue
from holdfast.analysis.collectives import standstills, wait_graph
from holdfast.analysis.collectives.positions import Wait
from holdfast.analysis.collectives.standstills import WaitCensus
from holdfast.analysis.logs import blame
from holdfast.explain.assemble import assemble
from holdfast.explain.diagnose import diagnose
from holdfast.explain.read.collected import Collected
from tests.analysis.collectives.dumped import entry, message, recorder, up_to
from tests.analysis.logs.patterns.made import wreckage
from tools import simulated_job, stuck_groups


@pytest.mark.parametrize("first", range(0, 24, 6))
def test_simulated_jobs_blame_no_innocent_rank(first: int) -> None:
    """A sample; `make proof` plays 5,000 of up to 512 ranks."""
    found = stuck_groups.tally(first, 6, 32, show=False)
    assert found.lines == []
    assert found.ways.total() >= 12


def test_a_simulated_job_is_the_same_for_the_same_seed() -> None:
    one, other = (simulated_job.random_job(7, largest=32) for _ in range(2))
    assert (one.mesh, one.misdeeds, one.felt()) == (other.mesh, other.misdeeds, other.felt())
    assert set(one.felt()) <= set(one.culprits())


def take(ranks: Mapping[int, list[Any]], groups: Mapping[int, Mapping[str, Any]]) -> WaitCensus:
    made = {rank: recorder(*own, groups=groups[rank]) for rank, own in ranks.items()}
    return standstills.take(made, range(len(groups)))


# --- scripts run ahead of their GPUs -------------------------------------------------------------

PAIRS = {r: {"0": range(4), "a": (0, 1), "b": (2, 3), "c": (1, 2)} for r in range(4)}


def later(sequence: int, group: str, at: int, *, done: bool = False, **changes: Any) -> Any:
    """Asked for at second `at`."""
    return entry(sequence, group, done=done, time_created_ns=at * 10**9, **changes)


def test_a_rank_that_waits_behind_another_is_not_the_missing_one() -> None:
    """3 never came to its pair; 2 waits there and has asked for more; 1 waits for 2's GPU, and so
    is missing from the default group, where 0 waits."""
    seen = take(
        {
            0: [later(1, "0", 9)],
            1: [later(1, "c", 7)],
            2: [later(1, "b", 5), later(1, "c", 7), later(1, "0", 9)],
            3: [later(1, "a", 1, done=True)],
        },
        PAIRS,
    )
    assert (seen.roots, seen.victims, seen.inside) == ((3,), (0, 1, 2), ())


def test_all_inside_names_those_whose_gpu_may_not_have_come() -> None:
    """All have asked for everything: only the first that is not over tells where it began."""
    seen = take(
        {
            0: [later(1, "0", 9)],
            1: [later(1, "0", 9)],
            2: [later(1, "b", 5), later(1, "0", 9)],
            3: [later(1, "b", 5), later(1, "0", 9)],
        },
        PAIRS,
    )
    assert (seen.roots, seen.inside, seen.detour) == ((), (2, 3), None)


def test_any_of_those_in_a_collective_that_never_ends_may_differ() -> None:
    """All GPUs of 1 and 3 are in theirs; that no rank waits for 3 does not clear it."""
    groups = {r: {"0": range(4), "a": (0, 1), "b": (2, 3), "e": (1, 3)} for r in range(4)}
    inside = [later(1, "e", 5, state="started")]
    seen = take(
        {
            0: [later(1, "a", 6, state="started")],
            1: inside,
            2: [later(1, "b", 3, done=True, state="completed"), later(1, "0", 8, state="started")],
            3: [later(1, "b", 3, done=True, state="completed"), *inside,
                later(1, "0", 8, state="started")],
        },
        groups,
    )  # fmt: skip
    assert (seen.roots, seen.inside) == ((), (1, 3))


def test_with_timing_the_gpu_that_never_came_is_named() -> None:
    over: Any = {"state": "completed", "time_discovered_started_ns": 1}
    seen = take(
        {r: [later(1, "0", 1, done=True, **over),
             later(2, "0", 2, state="scheduled" if r == 2 else "started")] for r in range(4)},
        PAIRS,
    )  # fmt: skip
    assert (seen.roots, seen.victims) == ((2,), (0, 1, 3))


# --- circles -------------------------------------------------------------------------------------

REPLICAS = {r: {"0": range(4), "x": (0, 2), "y": (1, 3)} for r in range(4)}


def skipping(rank: int) -> WaitCensus:
    """Every step: one in the replicas' group, then one of all. That rank leaves out the last one of
    its group; its partner waits there, all others in the step's end."""
    made: dict[int, list[Any]] = {}
    for r in range(4):
        group, partner = ("x", "y")[r % 2], r == (rank + 2) % 4
        places = ((1, group), (2, "0"))
        past = [later(n, g, 10 * n + k, done=True) for n in range(1, 5) for k, g in places]
        own = [later(5, group, 51, done=r % 2 != rank % 2)] if r != rank else []
        made[r] = [*past, *own, *([] if partner else [later(5, "0", 52)])]
    return take(made, REPLICAS)


@pytest.mark.parametrize("rank", range(4))
def test_the_order_of_the_group_beside_tells_which_rank_left_a_collective_out(rank: int) -> None:
    seen = skipping(rank)
    assert seen.detour is not None
    assert (seen.detour.ranks, seen.detour.undecided) == ((rank,), False)
    assert seen.detour.left_out == (("x", "y")[rank % 2], 5)


def test_without_a_group_beside_it_the_pair_is_named_as_a_set() -> None:
    groups = {r: {"0": (0, 1), "x": (0, 1)} for r in range(2)}
    seen = take({0: [later(1, "0", 2)], 1: [later(1, "x", 1)]}, groups)
    assert seen.detour is not None
    assert (seen.detour.ranks, seen.detour.undecided) == ((0, 1), True)


def wait(rank: int, *absent: int, only_sends: bool = False) -> list[Wait]:
    return [Wait(rank=rank, absent=absent, only_sends=only_sends, is_message=only_sends)]


def test_a_rank_with_nothing_but_sends_open_may_be_the_one_that_is_elsewhere() -> None:
    graph = wait_graph.of_waits({0: wait(0, 1, only_sends=True), 1: wait(1, 2), 2: wait(2, 0)})
    assert (set(graph.ends), graph.circles, set(graph.either)) == ({0}, (), set())
    both = wait_graph.of_waits(
        {
            0: wait(0, 1, only_sends=True),
            1: wait(1, 2),
            2: wait(2, 3, only_sends=True),
            3: wait(3, 0),
        }
    )
    assert (set(both.ends), set(both.either)) == ({0, 2}, {0, 2})


def test_two_culprits_at_once_a_circle_and_a_rank_that_never_came() -> None:
    graph = wait_graph.of_waits({0: wait(0, 1, 3), 1: wait(1, 0), 2: wait(2, 3)})
    assert (set(graph.ends), graph.circles) == ({3}, (frozenset({0, 1}),))


ranks = st.integers(0, 7)


@given(st.dictionaries(ranks, st.frozensets(ranks)), st.data())
def test_waits_that_share_their_sets_lead_where_each_single_one_leads(
    waits: dict[int, frozenset[int]], data: st.DataObject
) -> None:
    sure = {r: frozenset(o for o in w if data.draw(st.booleans())) for r, w in waits.items()}
    graph = wait_graph.follow(waits, sure)
    reach, surely = reached(waits), reached(sure)
    assert graph.ends == {o for others in waits.values() for o in others} - waits.keys()
    assert graph.led == {r for r in waits if reach[r] & graph.ends}
    mutual = {frozenset(o for o in surely[r] if r in surely.get(o, ())) | {r} for r in waits}
    assert set(graph.circles) == {circle for circle in mutual if len(circle) > 1}
    assert list(graph.circles) == sorted(graph.circles, key=min)


def reached(waits: dict[int, frozenset[int]]) -> dict[int, set[int]]:
    found = {rank: set(others) for rank, others in waits.items()}
    for _ in waits:
        for others in found.values():
            others |= {far for near in set(others) for far in found.get(near, ())}
    return found


# --- messages ------------------------------------------------------------------------------------

STAGES = {r: {"pp": range(3)} for r in range(3)}


def test_a_send_stays_open_after_later_messages_ended() -> None:
    """1 has sent to 0, which never took it, and has long received what 2 sent."""
    seen = take(
        {
            0: [],
            1: [message(1, "send 1->0", "pp", done=False), message(2, "recv 1<-2", "pp")],
            2: [message(1, "send 2->1", "pp"), message(2, "recv 2<-1", "pp", done=False)],
        },
        STAGES,
    )
    assert (seen.roots, seen.victims) == ((0,), (1, 2))


# --- what torch's own analyser gets wrong --------------------------------------------------------


def test_the_first_rank_is_not_taken_for_the_truth() -> None:
    """torchfrtrace compares all ranks with the first one it reads."""
    odd = [*up_to(10), entry(11, done=False, input_sizes=[[17]])]
    groups = {r: {"0": range(4)} for r in range(4)}
    seen = take({0: odd, **{r: up_to(11, waits=True) for r in (1, 2, 3)}}, groups)
    assert seen.mismatch is not None
    assert seen.mismatch.odd == (0,)


def test_ranks_are_aligned_by_their_groups_numbers_not_by_how_much_they_recorded() -> None:
    """It cuts all dumps to the largest first record_id; stages of a pipeline record differently."""
    first = [message(n, "send 0->1", "pp") for n in range(1, 40)]
    groups = {0: {"0": (0, 1), "pp": (0, 1)}, 1: {"0": (0, 1), "pp": (0, 1)}}
    seen = take({0: [*first, *up_to(3, waits=True)], 1: up_to(2)}, groups)
    assert seen.roots == (1,)


def test_an_operation_it_does_not_know_is_compared_like_any_other() -> None:
    new: Any = {"profiling_name": "nccl:window_put"}
    groups = {r: {"0": range(3)} for r in range(3)}
    seen = take(
        {0: up_to(5, waits=True, **new), 1: up_to(5, waits=True, **new), 2: up_to(4)}, groups
    )
    assert seen.roots == (2,)


def test_lost_dumps_leave_a_set_not_an_error() -> None:
    groups = {r: {"0": range(4)} for r in range(4)}
    seen = take({0: up_to(5, waits=True), 2: up_to(5, waits=True)}, groups)
    assert (seen.roots, seen.unseen, seen.near) == ((), (1, 3), (0, 2))


def test_a_rank_that_entered_nothing_may_be_the_one_beside_lost_dumps() -> None:
    """Gloo lists no members: it may belong to the group that the others wait in."""
    waiting = {r: recorder(entry(1, "7", done=False)) for r in (0, 3)}
    seen = standstills.take(waiting | {1: recorder()}, range(4))
    assert seen.unseen == (2,)
    assert 1 in seen.near


@pytest.mark.parametrize(
    ("world", "lost", "named"), [(12, (5,), True), (12, (5, 7), False), (3, (0, 2), False)]
)
def test_no_rank_is_blamed_only_because_dumps_are_lost(
    world: int, lost: tuple[int, ...], named: bool
) -> None:
    """Scripts run ahead, so any rank that waits may be the one whose GPU never came: beside a
    single lost dump that is a doubt, beside several nothing is left to name. Of three ranks one
    dump shows who waited, not for which of the others."""
    collected = Collected()
    for rank in set(range(world)).difference(lost):
        collected.recorders[rank] = recorder(*up_to(5, waits=True), groups={"0": range(world)})
    left = assemble(collected)
    found = diagnose(left, [entry.fault for entry in catalogue.entries()]).diagnoses[0]
    assert found.culprit is not None
    assert (found.slug, bool(found.culprit.ranks)) == ("rank-stuck", named)
    told = f"for which rank cannot be told: of ranks {lost[0]},{lost[-1]} (2 of {world})"
    assert (told in found.reason) is not named


# --- lines of watchdogs --------------------------------------------------------------------------


def lines(rank: int, sequence: int, group: str, member: int) -> tuple[str, str]:
    prefix = f"[rank{rank}]:[E1116 01:03:15.143127245 ProcessGroupNCCL.cpp:"
    caught = (
        f"{prefix}689] [Rank {rank}] Watchdog caught collective operation timeout: WorkNCCL("
        f"SeqNum={sequence}, OpType=ALLREDUCE, NumelIn=64, NumelOut=64, Timeout(ms)=600000) ran "
        "for 600012 milliseconds before timing out."
    )
    status = (
        f"{prefix}2303] [PG ID 1 PG GUID {group}(mesh_tp) Rank {member}]  failure detected by "
        f"watchdog at work sequence id: {sequence} PG status: last enqueued work: {sequence}, last "
        f"completed work: {sequence - 1}"
    )
    return caught, status


def test_parts_of_a_split_group_a_few_numbers_apart_are_no_branch() -> None:
    """Their numbers in the group show that one name means two groups."""
    told = [line for r in range(4) for line in lines(r, (104, 106)[r // 2], "1", r % 2)]
    assert blame.of(wreckage(*told, world_size=8)).disagreement is None


def test_equal_collectives_a_few_numbers_apart_are_lag() -> None:
    told = [line for r in range(4) for line in lines(r, (104, 106)[r // 2], "7", r)]
    assert blame.of(wreckage(*told, world_size=8)).disagreement is None
    far = [line for r in range(4) for line in lines(r, (104, 204)[r // 2], "7", r)]
    assert blame.of(wreckage(*far, world_size=8)).disagreement is not None
