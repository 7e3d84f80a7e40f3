"""A node that is not heard is not silent: nothing is concluded from where its ranks were."""

from __future__ import annotations

import signal

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.collectives import waits
from holdfast.analysis.scene import heard, overruns
from holdfast.analysis.scene.node_view import Hearing
from holdfast.analysis.scene.scene import Policy, Scene
from holdfast.catalogue import traits
from holdfast.run.watch import decide, verdict
from tests.analysis.collectives.meshes import Play
from tests.analysis.collectives.test_meshes import plays
from tests.faults.scenes import all_scenes
from tests.run.scenes import (
    NOW,
    a_beat,
    a_rank,
    a_scene,
    an_activity,
    changed,
    ended,
    held_up,
    lost_its_peer,
    nothing_known,
    on_nodes,
    words,
)

POLICY = Policy(patience=5.0, max_restarts=3, restarts_typed=True)
ALL = [(name, scene) for name, scene in all_scenes() if not scene.nodes]
STOPPED = {"activity": an_activity(state="T"), "state_since": NOW - 4}


def decided(scene: Scene) -> decide.Decision:
    found = verdict.judge(scene)
    history = decide.remember(scene.now, scene, found, decide.StallHistory())
    return decide.decide(scene.now, scene, found, POLICY, history)


def with_late(scene: Scene, size: int, node: str) -> Scene:
    hearing: dict[str, Hearing] = {node: "late"}
    return on_nodes(scene, size, **hearing)


def holds_for(scene: Scene, node: str, name: str = "") -> None:
    """What must hold of any scene in which that node is not heard."""
    unknown = set(heard.unheard_ranks(scene))
    assert unknown == {rank for one in scene.nodes if one.name == node for rank in one.ranks}
    opinion = verdict.consider(scene)
    assert not opinion.broken, name
    found = opinion.verdict
    if found is not None and not traits(found.slug).about_nodes:
        assert unknown.isdisjoint(found.ranks), (name, found)
        assert unknown.isdisjoint(found.victims), (name, found)
    seen = waits.analyse(scene)
    assert unknown.isdisjoint({w.rank for w in seen.waits} | {*seen.roots, *seen.victims})
    assert unknown.isdisjoint(rank for w in seen.waits for rank in w.absent)
    decision = decided(scene)
    if decision.action in ("restart", "stop") and decision.verdict is not None:
        acted_on = traits(decision.verdict.slug)
        assert acted_on.about_nodes or unknown.isdisjoint(decision.verdict.ranks)
        assert not acted_on.needs_stall
    elif decision.action in ("restart", "stop"):
        assert heard.late_nodes(scene) == ()


@pytest.mark.parametrize("node", ["a", "b"])
def test_no_scene_makes_a_culprit_of_a_late_nodes_rank(node: str) -> None:
    for name, scene in ALL:
        if len(scene.ranks) > 1:
            half = (len(scene.ranks) + 1) // 2
            holds_for(with_late(scene, half, node), node, name)


@given(plays(sizes=st.sampled_from([0, 48])), st.integers(1, 4), st.sampled_from("abcd"))
def test_nor_does_a_job_with_many_groups(play: Play, size: int, node: str) -> None:
    scene = with_late(play.scene(), size, node)
    if scene.node(node):
        holds_for(scene, node)


def test_several_nodes_that_are_heard_are_judged_like_one_machine() -> None:
    for name, scene in ALL:
        one = verdict.judge(scene)
        several = verdict.judge(on_nodes(scene, max(1, len(scene.ranks) // 2)))
        assert (one and (one.slug, one.certain)) == (several and (several.slug, several.certain)), (
            name
        )


STUCK_ON_B = held_up({2: {}}, seconds=60.0)
FROZEN_ON_A = held_up({1: STOPPED}, seconds=60.0)


def test_a_rank_on_a_late_node_is_not_stuck_and_its_peers_wait_for_what_is_unknown() -> None:
    heard_scene = verdict.judge(on_nodes(STUCK_ON_B))
    assert heard_scene is not None
    assert (heard_scene.slug, heard_scene.ranks) == ("rank-stuck", (2,))
    late = on_nodes(STUCK_ON_B, b="late")
    assert verdict.judge(late) is None
    assert waits.analyse(late).roots == ()
    assert decided(late).action == "go-on"


def test_a_rank_that_is_heard_is_named_but_nothing_is_done_while_a_node_is_late() -> None:
    assert decided(on_nodes(FROZEN_ON_A)).action == "restart"
    decision = decided(on_nodes(FROZEN_ON_A, b="late"))
    assert decision.action == "go-on"
    assert decision.verdict is not None
    assert (decision.verdict.slug, decision.verdict.ranks) == ("rank-frozen", (1,))
    assert "b" in decision.reason


LOST_A_PEER = a_scene([*map(lost_its_peer, (0, 1)), a_rank(2), a_rank(3)])
LONG_AGO = msgspec.structs.replace(LOST_A_PEER, now=NOW + 4.0)
KILLED = a_scene([ended(0, -signal.SIGKILL), lost_its_peer(1), a_rank(2), a_rank(3)])
SAID = words("MyError", "the group is gone", at=NOW - 0.9)
WRAPPED = a_scene([ended(0, 1, said=SAID), a_rank(1), a_rank(2), a_rank(3)])
BEFORE = msgspec.structs.replace(WRAPPED, now=NOW + 4.5)
TOLD = a_scene(told_to_stop="SIGTERM")


@pytest.mark.parametrize(
    ("scene", "action", "why"),
    [
        (on_nodes(LOST_A_PEER, b="late"), "hold", "only consequences: the lease decides"),
        (on_nodes(LONG_AGO, b="late"), "hold", "for as long as the lease lasts"),
        (on_nodes(LONG_AGO), "restart", "no node is late, and two seconds are over"),
        (on_nodes(LONG_AGO, b="lost"), "restart", "it is no longer late"),
        (on_nodes(KILLED, b="late"), "restart", "killed: that follows from no late node"),
        (on_nodes(WRAPPED, b="late"), "hold", "an exception of the script's own may follow"),
        (on_nodes(BEFORE, b="late"), "restart", "it was raised while all nodes were heard"),
        (on_nodes(TOLD, b="late"), "stop", "told to stop"),
        (on_nodes(a_scene(), b="late"), "go-on", "nothing else is wrong"),
        (on_nodes(held_up({1: {}}, seconds=3000.0), b="late"), "go-on", "no timeout is enforced"),
        (on_nodes(held_up({1: {}}, seconds=3000.0), b="lost"), "restart", "for the lost node"),
        (on_nodes(held_up({1: {}}, seconds=3000.0)), "restart", "all are heard"),
    ],
)
def test_what_is_done_while_a_node_is_late(scene: Scene, action: str, why: str) -> None:
    decision = decided(scene)
    assert decision.action == action, why


@pytest.mark.parametrize("seen", [LONG_AGO, held_up({1: {}}, seconds=3000.0), FROZEN_ON_A])
def test_a_lost_node_is_what_is_acted_on(seen: Scene) -> None:
    decision = decided(on_nodes(seen, b="lost"))
    assert decision.verdict is not None
    assert (decision.verdict.slug, decision.verdict.hosts) == ("node-lost", ("b",))


def test_a_wait_counts_from_when_all_nodes_were_heard_again() -> None:
    history = decide.StallHistory(stalled_since=NOW - 50.0, stalled_at=("before",))
    scene = on_nodes(held_up({1: {}}, seconds=60.0), b="late")
    assert decide.remember(NOW, scene, verdict.judge(scene), history).stalled_since == 0.0


def test_a_deadline_that_passed_on_a_late_node_is_not_known_to_have_passed() -> None:
    over = changed(a_scene(), 3, beat=a_beat(limit_name="save", limit_until=NOW - 9.0))
    assert [v.rank for v in overruns.overrun_ranks(on_nodes(over))] == [3]
    assert overruns.overrun_ranks(on_nodes(over, b="late")) == ()


def test_ranks_of_which_no_report_has_come_are_missing_not_absent() -> None:
    whole = on_nodes(nothing_known())
    some = msgspec.structs.replace(whole, ranks=whole.ranks[:2])
    assert heard.known_part(some).missing_members == 2
    assert heard.known_part(whole) is whole
    assert heard.known_part(a_scene()).missing_members == 0
