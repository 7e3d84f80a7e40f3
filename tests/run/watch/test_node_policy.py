"""What a decision means for the nodes of a job."""

from __future__ import annotations

import msgspec
import pytest

from holdfast.analysis.scene.checkpoints import CheckpointAccount, Saved
from holdfast.analysis.scene.node_view import Hearing, NodeView, PathProbes
from holdfast.analysis.scene.scene import Death, Policy, Scene
from holdfast.findings import Verdict
from holdfast.run.nodes.messages import ToldToStop
from holdfast.run.watch import node_policy
from holdfast.run.watch.decide import Decision
from tests.run.peers_in_memory import PeersInMemory, a_round
from tests.run.scenes import NOW, a_rank, a_scene, held_up

SAVED = CheckpointAccount(
    saves=(Saved(attempt=0, step=5, path="/c/5", bytes=1, stall=0.0, seconds=0.1, at=0.0),)
)
SAVED_FOR_ANY_WORLD = CheckpointAccount(
    saves=tuple(msgspec.structs.replace(saved, any_world=True) for saved in SAVED.saves)
)
RESTARTS = Policy(patience=None, max_restarts=3)
ROUND = a_round(a=2, b=1, c=1)


def nodes(**changed: str) -> tuple[NodeView, ...]:
    ranks = {"a": (0, 1), "b": (2,), "c": (3,)}
    return tuple(
        NodeView(name=name, ranks=numbers, coordinates=name == "a", hearing=changed.get(name, "heard"))  # type: ignore[arg-type]  # noqa: E501
        for name, numbers in ranks.items()
    )  # fmt: skip


def a_scene_of_nodes(codes: dict[int, int] | None = None, **changes: object) -> Scene:
    deaths = {rank: Death(code=code, at=NOW) for rank, code in (codes or {}).items()}
    views = [a_rank(rank, death=deaths.get(rank)) for rank in range(4)]
    return a_scene(views, nodes=nodes(), **changes)


def peers(
    *told: str, signal: str = "SIGTERM", at: float = NOW - 10, least: int = 1
) -> PeersInMemory:
    made = PeersInMemory(ROUND, "b", "c", least=least)
    for name in told:
        made.change(name, told=ToldToStop(signal=signal), told_at=at)
    return made


def lost(made: PeersInMemory, name: str) -> PeersInMemory:
    made.change(name, hearing="lost", silent=8.0)
    return made


def a_verdict(**changes: object) -> Verdict:
    found = Verdict(
        code="HOLD705", slug="node-lost", ranks=(), victims=(0, 1, 3), reason="b is gone",
        certain=True, hosts=("b",),
    )  # fmt: skip
    return msgspec.structs.replace(found, **changes)


RESTART = Decision(action="restart", reason="restarting (1 of 3)")


@pytest.mark.parametrize(
    ("codes", "all_well"),
    [
        ({}, False),
        ({0: 0}, False),
        ({0: 0, 1: 0}, False),
        ({0: 0, 1: 0, 2: 0, 3: 0}, True),
        ({0: 0, 1: 0, 2: 0, 3: 1}, False),
    ],
)
def test_a_job_is_done_when_the_ranks_of_all_nodes_are(
    codes: dict[int, int], all_well: bool
) -> None:
    assert node_policy.all_ended_well(a_scene_of_nodes(codes)) is all_well


def test_a_node_without_a_report_has_not_ended_well() -> None:
    ended = [a_rank(rank, death=Death(code=0, at=NOW)) for rank in range(3)]
    assert not node_policy.all_ended_well(a_scene(ended, nodes=nodes()))


@pytest.mark.parametrize(
    ("made", "action", "without"),
    [
        pytest.param(lost(peers(least=2), "b"), "restarting (1 of 3), without b", (), id="lost"),
        pytest.param(
            lost(peers(least=3), "b"), "restarting (1 of 3) once b is back", (), id="needed"
        ),
        pytest.param(peers(least=2), "restarting (1 of 3), without b", ("b",), id="sick"),
        pytest.param(peers(least=3), "restarting (1 of 3)", (), id="sick and needed"),
    ],
)
def test_a_node_to_blame_is_left_out_where_enough_are_left(
    made: PeersInMemory, action: str, without: tuple[str, ...]
) -> None:
    assert node_policy.reason(RESTART, a_verdict(), made) == action
    assert node_policy.left_out(a_verdict(), made) == without


def test_of_a_broken_path_one_end_is_left_out_and_never_the_coordinator() -> None:
    path = a_verdict(hosts=(), paths=(("a", "b"),))
    assert node_policy.left_out(path, peers()) == ("b",)
    between_others = a_verdict(hosts=(), paths=(("c", "b"),))
    assert node_policy.left_out(between_others, peers()) == ("c",)
    assert node_policy.left_out(msgspec.structs.replace(path, certain=False), peers()) == ()


def test_ranks_that_wait_for_a_lost_node_are_not_asked_to_save() -> None:
    scene = msgspec.structs.replace(held_up({2: {}}), nodes=nodes(b="lost"))
    about_a_rank = a_verdict(hosts=(), slug="rank-stuck", ranks=(2,))
    assert node_policy.to_kill_at_once(a_verdict(), scene) >= {0, 1, 3}
    assert node_policy.to_kill_at_once(about_a_rank, scene).isdisjoint({0, 1, 3})


@pytest.mark.parametrize(
    ("made", "saves", "action", "exit_code"),
    [
        pytest.param(peers("b"), True, "restart", 0, id="one node is taken"),
        pytest.param(peers("b", at=NOW - 1), True, "hold", 0, id="others may follow"),
        pytest.param(peers("b", "c"), True, "restart", 0, id="all others: this node goes on"),
        pytest.param(peers("b", "c", least=2), True, "stop", 143, id="and may not go on alone"),
        pytest.param(peers("b", signal="SIGINT"), True, "stop", 130, id="Ctrl-C"),
        pytest.param(peers("b", least=3), True, "stop", 143, id="too few would be left"),
        pytest.param(peers("b"), False, "stop", 143, id="nothing resumes this job"),
    ],
)
def test_a_node_that_is_told_to_stop(
    made: PeersInMemory, saves: bool, action: str, exit_code: int
) -> None:
    scene = a_scene_of_nodes(checkpoints=SAVED if saves else CheckpointAccount())
    change = node_policy.change_of_nodes(scene, made, RESTARTS, since=0.0)
    assert change is not None
    assert (change.action, change.exit_code) == (action, exit_code)


@pytest.mark.parametrize(
    ("runs_for", "account", "taken"),
    [
        (61.0, SAVED_FOR_ANY_WORLD, True),
        (59.0, SAVED_FOR_ANY_WORLD, False),
        (61.0, SAVED, False),  # resume() would refuse them with more ranks
        (61.0, CheckpointAccount(), False),
    ],
)
def test_a_waiting_node_is_taken_in_when_nothing_is_lost_by_it(
    runs_for: float, account: CheckpointAccount, taken: bool
) -> None:
    made = peers()
    made.waiting = ("d",)
    scene = a_scene_of_nodes(checkpoints=account)
    change = node_policy.change_of_nodes(scene, made, RESTARTS, since=scene.now - runs_for)
    assert (change is not None) is taken
    assert change is None or (change.action, "take in d" in change.reason) == ("restart", True)


def test_nothing_changes_while_nothing_happens() -> None:
    scene = a_scene_of_nodes(checkpoints=SAVED)
    assert node_policy.change_of_nodes(scene, peers(), RESTARTS, since=0.0) is None
    assert not node_policy.needs_a_look(scene)
    assert node_policy.may_be_said(scene, a_verdict(hosts=("b",)))


@pytest.mark.parametrize(
    ("silent", "more"),
    [
        pytest.param({"b": ("lost", 7.6), "c": ("late", 7.4)}, True, id="together"),
        pytest.param({"b": ("lost", 7.6), "c": ("late", 5.7)}, True, id="a second later"),
        pytest.param({"b": ("lost", 7.6), "c": ("late", 3.0)}, False, id="another event"),
        pytest.param({"b": ("lost", 7.6), "c": ("heard", 0.1)}, False, id="one node"),
        pytest.param({"b": ("late", 7.4), "c": ("late", 7.4)}, False, id="none is lost"),
        pytest.param({"b": ("lost", 7.6), "c": ("lost", 7.6)}, False, id="both are"),
    ],
)
def test_nodes_that_fall_silent_together_are_named_together(
    silent: dict[str, tuple[Hearing, float]], more: bool
) -> None:
    seen = tuple(
        msgspec.structs.replace(
            node, hearing=hearing, silent=seconds, farewell="silent" if hearing == "lost" else ""
        )
        for node in nodes()
        for hearing, seconds in (silent.get(node.name, ("heard", 0.1)),)
    )
    scene = a_scene([a_rank(rank) for rank in range(4)], nodes=seen)
    assert node_policy.more_may_be_lost(scene) is more
    assert node_policy.is_lost(scene) is any(h == "lost" for h, _ in silent.values())
    assert not node_policy.may_be_said(scene, a_verdict(hosts=("d",)))
    assert node_policy.may_be_said(scene, a_verdict(hosts=tuple(silent)))
    assert node_policy.needs_a_look(scene)


@pytest.mark.parametrize(("age", "looked_at"), [(1.0, True), (30.0, False)])
def test_what_probes_showed_is_looked_at_while_it_is_new(age: float, looked_at: bool) -> None:
    scene = a_scene_of_nodes(probes=PathProbes(at=NOW - age))
    assert node_policy.needs_a_look(scene) is looked_at
