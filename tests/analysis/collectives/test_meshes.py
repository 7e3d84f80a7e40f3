"""Verdicts where ranks meet in many groups: the one that is blamed is the one to blame."""

from __future__ import annotations

import signal

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from holdfast.analysis.collectives import arrivals
from holdfast.analysis.collectives.mismatch import find_mismatch
from holdfast.analysis.collectives.waits import analyse
from holdfast.analysis.machine import Unread
from holdfast.analysis.scene.scene import Recorder, Scene
from holdfast.run.watch.verdict import judge
from tests.analysis.collectives.meshes import Mesh, Op, Play, again, timed
from tests.run.scenes import (
    ENFORCE,
    NOW,
    a_rank,
    a_recorder,
    a_scene,
    changed,
    ended,
    entry,
    lost_its_peer,
    words,
)

UNSEEN = Unread(why="no socket")
STEPS = 4
FSDP_TP = [Op("dp", 16), Op("tp", 8), Op("dp", 16, ahead=True), Op("tp", 8), Op("dp", 32)]
"""a layer gathered, used, the next one fetched ahead, gradients reduced"""

MESHES = st.builds(Mesh, dp=st.integers(1, 4), tp=st.integers(1, 4))
OPS = st.builds(
    Op,
    axis=st.sampled_from(["dp", "tp", "dp", "tp", "world"]),
    size=st.sampled_from([16, 24, 32]),
    ahead=st.booleans(),
)


@st.composite
def plays(draw: st.DrawFn, *, sizes: st.SearchStrategy[int]) -> Play:
    mesh = draw(MESHES)
    step = draw(st.lists(OPS, min_size=1, max_size=6))
    program = again(step, STEPS)
    # not in the first step: a group that was never used yet is known to nobody
    stops_at = draw(st.integers(len(step), len(program) - 1))
    return Play(
        mesh=mesh,
        program=program,
        step=len(step),
        culprit=draw(st.sampled_from(mesh.ranks)),
        stops_at=stops_at,
        size=draw(sizes),
    )


# --- one rank stops ----------------------------------------------------------------------------


@pytest.mark.parametrize("culprit", range(4))
@pytest.mark.parametrize("stops_at", range(len(FSDP_TP), 2 * len(FSDP_TP)))
def test_the_sleeper_of_a_mesh_is_named_and_only_it(culprit: int, stops_at: int) -> None:
    play = Play(
        mesh=Mesh(2, 2),
        program=again(FSDP_TP, STEPS),
        step=len(FSDP_TP),
        culprit=culprit,
        stops_at=stops_at,
    )
    verdict = judge(play.scene())
    assert verdict is not None
    assert (verdict.slug, verdict.ranks) == ("rank-stuck", (culprit,))
    assert verdict.victims == tuple(r for r in range(4) if r != culprit)


def test_the_sentence_tells_who_waits_for_it_and_who_behind() -> None:
    play = Play(mesh=Mesh(2, 2), program=again(FSDP_TP, 2), step=5, culprit=2, stops_at=6)
    verdict = judge(play.scene())
    assert verdict is not None
    assert verdict.reason.endswith(
        "; rank 0 waits for it in all_reduce #5 of group 1, rank 3 in all_reduce #3 of group 4, "
        "rank 1 behind them"
    )


@given(plays(sizes=st.just(0)))
def test_whoever_stops_is_named_with_all_records(play: Play) -> None:
    verdict = judge(play.scene())
    blocked = play.blocked()
    if not blocked:
        assert verdict is None
        return
    assert verdict is not None
    assert (verdict.slug, verdict.ranks) == ("rank-stuck", (play.culprit,))
    assert set(verdict.victims) <= set(blocked)


@given(plays(sizes=st.just(0)), st.data())
def test_no_innocent_is_named_with_fewer_records(play: Play, data: st.DataObject) -> None:
    scene = play.scene()
    for rank in data.draw(st.sets(st.sampled_from(play.mesh.ranks))):
        lost = data.draw(st.sampled_from([("stack",), ("recorder",), ("stack", "recorder")]))
        scene = changed(scene, rank, **dict.fromkeys(lost, UNSEEN))
    verdict = judge(scene)
    assert verdict is None or verdict.ranks in ((), (play.culprit,)), verdict.reason


# --- one rank has another size -----------------------------------------------------------------


def wrong_size(size: int, *, mesh: Mesh, culprit: int = 2) -> Play:
    return Play(
        mesh=mesh, program=again(FSDP_TP, STEPS), step=5, culprit=culprit, stops_at=16, size=size
    )


def gloo_aborts(play: Play, rank: int) -> Scene:
    """It was sent more than it expected; everybody else lost a peer."""
    scene = play.scene()
    for other in play.mesh.ranks:
        fell = lost_its_peer(other)
        scene = changed(scene, other, death=fell.death, words=fell.words)
    dead = ended(rank, -signal.SIGABRT, at=NOW - 1.2).death
    said = words("gloo::EnforceNotMet", ENFORCE, where="", at=NOW - 1.2)
    return changed(scene, rank, death=dead, words=said, recorder=None, stack=None)


@pytest.mark.parametrize("size", [7, 700])
@pytest.mark.parametrize("mesh", [Mesh(2, 2), Mesh(4, 2), Mesh(3, 3)])
@pytest.mark.parametrize("culprit", [0, 2])
def test_the_pair_beside_tells_who_of_a_pair_is_wrong(size: int, mesh: Mesh, culprit: int) -> None:
    """Gloo aborts whoever expects less: the culprit itself, or the one beside it."""
    play = wrong_size(size, mesh=mesh, culprit=culprit)
    found = find_mismatch(play.scene())
    assert found is not None
    assert (found.odd, found.undecided) == ((culprit,), False)
    beside = next(r for r in mesh.members(culprit, "tp") if r != culprit)
    verdict = judge(gloo_aborts(play, culprit if size < 8 else beside))
    assert verdict is not None
    assert (verdict.slug, verdict.ranks) == ("collective-mismatch", (culprit,))


def test_without_a_group_beside_it_a_pair_stays_undecided() -> None:
    play = wrong_size(7, mesh=Mesh(1, 2), culprit=1)
    found = find_mismatch(play.scene())
    assert found is not None
    assert (found.odd, found.undecided) == ((0, 1), True)


def test_groups_that_do_different_things_have_no_say() -> None:
    """Replicas with batches of their own size: what is usual beside them says nothing."""

    def recorder(group: str, *sizes: int) -> Recorder:
        return a_recorder(
            *(
                entry(n, group=group, shape=f"[[{size}]] Float", finished=n < len(sizes))
                for n, size in enumerate(sizes, 1)
            )
        )

    held = [recorder("3", 8, 8, 8, 8, 8)] * 2
    alike = [*held, recorder("4", 8, 8, 8, 8, 7), recorder("4", 8, 8, 8, 8, 8)]
    apart = [*held, recorder("4", 8, 9, 8, 8, 7), recorder("4", 8, 9, 8, 8, 8)]
    for recorders, odd in ((alike, (2,)), (apart, (2, 3))):
        scene = a_scene([a_rank(r, recorder=recorders[r]) for r in range(4)], evidence_at=NOW)
        found = find_mismatch(scene)
        assert found is not None
        assert (found.odd, found.undecided) == (odd, len(odd) > 1)


@given(plays(sizes=st.sampled_from([7, 700])), st.data())
def test_no_innocent_is_named_for_a_wrong_size(play: Play, data: st.DataObject) -> None:
    op = play.program[play.stops_at]
    group = [r for r in play.mesh.members(play.culprit, op.axis) if r != play.culprit]
    came = [r for r in group if r in play.blocked()]
    assume(came)
    scene = play.scene()
    if data.draw(st.booleans()):
        scene = gloo_aborts(play, play.culprit if play.size == 7 else data.draw(
            st.sampled_from(came)))  # fmt: skip
    found = analyse(scene).mismatch
    if found is not None and not found.undecided:
        assert found.odd == (play.culprit,)
    elif found is not None:
        assert play.culprit in found.odd
        assert set(found.odd) <= {play.culprit, *group}
    verdict = judge(scene)
    assert verdict is None or found or verdict.ranks in ((), (play.culprit,)), verdict.reason


# --- one rank is slow --------------------------------------------------------------------------


@pytest.mark.parametrize("slow", range(4))
@pytest.mark.parametrize("steps", [12, 80])
def test_the_slow_rank_of_a_mesh_is_named_not_those_it_delays(slow: int, steps: int) -> None:
    """Also when more has been recorded of one group than of another."""
    costs = {rank: 0.25 if rank == slow else 0.05 for rank in range(4)}
    late = arrivals.straggler(timed(Mesh(2, 2), again(FSDP_TP, steps), costs, step=5))
    assert late is not None
    assert late.rank == slow
    assert late.lag == pytest.approx(0.2, abs=0.01)


@given(MESHES, st.lists(OPS, min_size=1, max_size=6), st.data())
def test_no_innocent_is_called_slow(mesh: Mesh, step: list[Op], data: st.DataObject) -> None:
    slow = data.draw(st.sampled_from(mesh.ranks))
    costs = {rank: 0.25 if rank == slow else 0.05 for rank in mesh.ranks}
    late = arrivals.straggler(timed(mesh, again(step, 12), costs, step=len(step)))
    assert late is None or late.rank == slow
