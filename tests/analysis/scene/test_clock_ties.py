"""Two endings on different nodes: inside what is unknown of their clocks neither was first."""

from __future__ import annotations

import signal
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import arrivals
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.clock_shift import ClockShift, moved
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.analysis.scene.surroundings import in_doubt
from holdfast.run.watch import verdict
from tests.analysis.collectives.meshes import Mesh, Op, again, timed
from tests.run.big_scenes import claim
from tests.run.scenes import (
    NOW,
    a_beat,
    a_rank,
    a_scene,
    changed,
    ended,
    lost_its_peer,
    on_nodes,
    words,
)

THEN = NOW - 1.0


def bounded(scene: Scene, bound: float) -> Scene:
    """Node a's clock is the coordinator's own."""
    nodes = tuple(
        msgspec.structs.replace(node, clock_bound=0.0 if node.coordinates else bound)
        for node in scene.nodes
    )
    return msgspec.structs.replace(scene, nodes=nodes)


def raised(rank: int, at: float, kind: str = "ValueError") -> RankView:
    said = words(kind, "bad batch", at=at, where=f"train.py:{rank} in f")
    return ended(rank, 1, at=at + 0.2, said=said)


def killed(rank: int, at: float) -> RankView:
    return ended(rank, -signal.SIGKILL, at=at)


def job(*ends: RankView, bound: float = 0.05) -> Scene:
    """Ranks 0-1 on node a, 2-3 on node b; those not given live."""
    known = {view.rank: view for view in ends}
    return bounded(on_nodes(a_scene([known.get(r, a_rank(r)) for r in range(4)])), bound)


def causes(scene: Scene) -> list[int]:
    return sorted(e.rank for e in exits.cause(scene))


@pytest.mark.parametrize(
    ("ends", "first"),
    [
        ((raised(0, THEN), raised(2, THEN + 0.04, "KeyError")), [0, 2]),
        ((raised(0, THEN + 0.04), raised(2, THEN, "KeyError")), [0, 2]),
        ((raised(0, THEN), raised(2, THEN + 0.06, "KeyError")), [0]),
        ((raised(0, THEN), raised(1, THEN + 0.04, "KeyError")), [0]),  # one machine, one clock
        ((raised(2, THEN), raised(3, THEN + 0.001, "KeyError")), [2]),
        ((killed(0, THEN), raised(2, THEN + 0.04)), [0, 2]),
        # Words that name no cause are a consequence whenever they came.
        ((lost_its_peer(0, at=THEN - 0.02), raised(2, THEN)), [2]),
        ((lost_its_peer(0, at=THEN + 0.02), raised(2, THEN)), [2]),
    ],
)
def test_what_may_have_been_first_is_a_cause(ends: tuple[RankView, ...], first: list[int]) -> None:
    assert causes(job(*ends)) == first


def test_a_tie_is_said_to_be_one() -> None:
    found = verdict.judge(job(killed(0, THEN), raised(2, THEN + 0.04), lost_its_peer(1)))
    assert found is not None
    assert (found.slug, found.ranks, found.victims) == ("rank-killed", (0,), (1, 3))
    assert "ranks 1,3 exited as a result" in found.reason
    assert "rank 2 (node b, pid 4002) ended at the same time" in found.reason
    assert "which was first is not known" in found.reason
    assert any("bad batch" in e.quote for e in found.evidence)
    clear = verdict.judge(job(killed(0, THEN), raised(2, THEN + 0.2), lost_its_peer(1)))
    assert clear is not None
    assert clear.victims == (1, 2, 3)
    assert "at the same time" not in clear.reason


def test_two_that_were_killed_at_once_are_both_named() -> None:
    found = verdict.judge(job(killed(1, THEN), killed(2, THEN + 0.01)))
    assert found is not None
    assert (found.slug, found.ranks) == ("rank-killed", (1, 2))
    assert "ranks 1 (node a), 2 (node b) were killed by SIGKILL" in found.reason
    assert "which was first" not in found.reason


@pytest.mark.parametrize("later", [0.3, 2.0])
def test_a_rank_that_was_killed_elsewhere_did_not_exit_as_a_result(later: float) -> None:
    found = verdict.judge(job(killed(1, THEN - 2.0), killed(2, THEN - 2.0 + later)))
    assert found is not None
    assert (found.ranks, found.victims) == ((1, 2), (0, 3))


def test_a_death_may_be_seen_late_by_another_launcher() -> None:
    assert causes(job(raised(0, THEN), killed(2, THEN + 0.2))) == [0, 2]
    assert causes(job(raised(0, THEN), killed(2, THEN + 0.4))) == [0]
    assert causes(job(killed(0, THEN), raised(2, THEN + 0.2))) == [0]  # it was no later than that
    assert causes(job(raised(2, THEN), killed(3, THEN + 0.2))) == [2]  # the same launcher


def mute(rank: int, at: float) -> RankView:
    """Exit code 1 without a word, after a step."""
    return ended(rank, 1, at=at)


def left_well(rank: int, at: float) -> RankView:
    return ended(rank, 0, at=at)


def test_who_may_have_left_after_another_went_is_not_accused() -> None:
    assert causes(job(left_well(0, THEN), mute(2, THEN + 0.02))) == []
    assert causes(job(left_well(0, THEN), mute(2, THEN - 0.02))) == []  # perhaps it was after
    assert causes(job(left_well(0, THEN), mute(2, THEN - 0.5))) == [2]
    assert causes(job(left_well(3, THEN), mute(2, THEN - 0.02))) == [2]  # one clock


def test_an_exception_is_an_echo_only_if_others_surely_complained_before() -> None:
    gone, echo = left_well(1, THEN - 0.5), lost_its_peer(0, at=THEN)
    assert causes(job(gone, echo, raised(2, THEN + 0.02))) == [2]
    assert causes(job(gone, echo, raised(2, THEN + 0.2))) == []


@st.composite
def ways_to_end(draw: st.DrawFn) -> list[RankView]:
    moments = st.floats(-0.2, 0.2).map(lambda offset: THEN + offset)
    ways = [killed, raised, mute, left_well, lambda r, at: lost_its_peer(r, at=at)]
    chosen: list[RankView] = []
    for rank in range(4):
        if draw(st.booleans()):
            way: Any = draw(st.sampled_from(ways))
            chosen.append(way(rank, draw(moments)))
    return chosen


@given(ways_to_end(), st.floats(0.0, 0.3))
def test_a_worse_clock_never_makes_a_single_winner_of_another_rank(
    ends: list[RankView], bound: float
) -> None:
    """What is unknown of a clock adds possible causes, or leaves it undecided."""
    exact = causes(job(*ends, bound=0.0))
    doubtful = causes(job(*ends, bound=bound))
    assert not exact or not doubtful or set(exact) <= set(doubtful)


@given(ways_to_end())
def test_with_one_clock_nodes_change_nothing(ends: list[RankView]) -> None:
    on_one = a_scene([{v.rank: v for v in ends}.get(r, a_rank(r)) for r in range(4)])
    if not any(e.polled for e in exits.endings(on_one)):
        assert causes(job(*ends, bound=0.0)) == causes(on_one)
    assert not exits.tied(on_one)


def test_only_two_nodes_are_in_doubt_about_each_other() -> None:
    scene = bounded(on_nodes(a_scene([a_rank(r) for r in range(6)])), 0.1)
    assert in_doubt(scene, 0, 1) == in_doubt(scene, 2, 3) == 0.0
    assert in_doubt(scene, 0, 2) == 0.1
    assert in_doubt(scene, 2, 4) == 0.2
    assert in_doubt(a_scene(), 0, 3) == 0.0


@pytest.mark.parametrize(("bound", "slow"), [(0.0, 3), (0.05, 3), (0.3, None)])
def test_no_rank_is_slow_by_less_than_the_clocks_are_apart(bound: float, slow: int | None) -> None:
    costs = {rank: 0.25 if rank == 3 else 0.05 for rank in range(4)}
    program = again([Op("world", 16)], 20)
    late = arrivals.straggler(bounded(on_nodes(timed(Mesh(4, 1), program, costs, step=1)), bound))
    assert (late.rank if late else None) == slow


def test_a_wall_clock_that_was_set_makes_no_rank_slow() -> None:
    """All that node b recorded before looks two seconds late since: so does its ranks' joining."""
    even = on_nodes(timed(Mesh(4, 1), again([Op("world", 16)], 20), dict.fromkeys(range(4), 0.05),
                          step=1), 1)  # fmt: skip
    joined = tuple(
        msgspec.structs.replace(v, beat=a_beat(claim=claim(v.rank, 4))) for v in even.ranks
    )
    even = msgspec.structs.replace(even, ranks=joined)
    slow = changed(even, 3, recorder=moved(even.rank(3), ClockShift(0.0, 2.0)).recorder)
    late = arrivals.straggler(slow)
    assert late is not None
    assert late.rank == 3
    stepped = changed(even, 3, **{
        name: getattr(moved(even.rank(3), ClockShift(0.0, 2.0)), name)
        for name in ("recorder", "beat")
    })  # fmt: skip
    assert arrivals.straggler(stepped) is None


def test_ranks_of_one_node_are_compared_exactly() -> None:
    costs = {rank: 0.25 if rank == 3 else 0.05 for rank in range(4)}
    apart = timed(Mesh(2, 2), again([Op("tp", 16)], 20), costs, step=1)
    late = arrivals.straggler(bounded(on_nodes(apart), 10.0))
    assert late is not None
    assert late.rank == 3
