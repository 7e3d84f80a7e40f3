"""Which of several opinions is taken where nodes and paths are concerned."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.job import suspected_paths
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.scene.scene import Scene
from holdfast.run.watch.verdict import judge
from tests.faults.made_nodes import cut, loss, paths, probes, sizes
from tests.run.node_scenes import (
    PATHS,
    A,
    B,
    C,
    D,
    closed,
    connection,
    four_nodes,
    gone_silent,
    on_node,
    tried,
    unanswered,
    unanswered_both_ways,
    waiting_nodes,
)
from tests.run.scenes import (
    IN_SLEEP,
    NOW,
    RESET,
    an_activity,
    changed,
    elsewhere,
    ended,
    entry,
    waiting,
    words,
)

BROKEN = paths(PATHS, [(B, C), (C, B)])
STUCK = changed(waiting_nodes(8.0), 5, recorder=elsewhere(), stack=IN_SLEEP)
"""rank 5 on node-c sleeps; the others wait for it"""
FROZEN = changed(
    waiting_nodes(8.0),
    5,
    recorder=elsewhere(),
    activity=an_activity(state="T"),
    state_since=NOW - 7.9,
)
TORN = changed(waiting_nodes(8.0), 3, recorder=waiting(entry(101), entry(102, finished=False)))
"""rank 3 has come one collective further: its data had arrived before the path broke"""


def reset(scene: Scene, *ranks: int) -> Scene:
    """They lost a connection, and ended."""
    for rank in ranks:
        said = words("RuntimeError", RESET, at=NOW - 1.2)
        view = ended(rank, 1, at=NOW - 0.9, said=said)
        scene = changed(scene, rank, death=view.death, words=said, activity=None)
    return scene


CASES = {
    "a killed launcher, and what the others say of it": (
        reset(closed(four_nodes(), C), 0, 1, 2, 3, 6, 7),
        ("node-lost", (C,), ()),
    ),
    "a machine that is gone, while others still wait": (
        gone_silent(waiting_nodes(8.0), C),
        ("node-lost", (C,), ()),
    ),
    "ranks of the lost node were behind": (gone_silent(STUCK, C), ("node-lost", (C,), ())),
    "two of four": (gone_silent(waiting_nodes(8.0), C, D), ("network-partition", (C, D), ())),
    "a broken path, and a rank that seems behind": (
        tried(unanswered_both_ways(TORN, B, C), BROKEN),
        ("peer-unreachable", (), ((B, C), (C, B))),
    ),
    "a stuck rank, all connections well": (STUCK, ("rank-stuck", (), ())),
    "a stuck rank, and a broken path that no rank needs": (
        tried(STUCK, BROKEN),
        ("rank-stuck", (), ()),
    ),
    "a frozen rank: its connections fill up, and are well": (FROZEN, ("rank-frozen", (), ())),
    "a node that is preempted, and lost soon after": (
        on_node(gone_silent(four_nodes(), C), C, told_to_stop="SIGTERM"),
        ("external-sigterm", (C,), ()),
    ),
    "a rank that crashed before another node was lost": (
        closed(changed(four_nodes(), 0, death=ended(0, -11, at=NOW - 5).death, activity=None), C),
        ("native-crash", (), ()),
    ),
}


@pytest.mark.parametrize(("scene", "expected"), CASES.values(), ids=CASES.keys())
def test_which_one_leads(
    scene: Scene, expected: tuple[str, tuple[str, ...], tuple[tuple[str, str], ...]]
) -> None:
    found = judge(scene)
    assert found is not None
    assert (found.slug, found.hosts, found.paths) == expected, found.reason


# --- healthy twins: slow, jittery, late, and nothing is wrong -------------------------------------

LATENCY = connection(connection(four_nodes(), B, C, retransmitted=367, sent=1823), C, B, backoff=1)
FLAP_OVER = tried(unanswered_both_ways(waiting_nodes(9.0), B, C, seconds=8.9), PATHS)
QUIET = {
    "200 ms of latency, with jitter": tried(LATENCY, PATHS),
    "a node is late": gone_silent(waiting_nodes(5.0), C, hearing="late", farewell="", seconds=4.9),
    "two nodes are late": gone_silent(
        waiting_nodes(5.0), C, D, hearing="late", farewell="", seconds=4.9
    ),
    "a flap while two nodes wait for each other": tried(
        unanswered_both_ways(waiting_nodes(5.0), B, C, seconds=4.9), BROKEN, ago=2.0
    ),
    "a flap is over, and TCP pauses still": FLAP_OVER,
    "a connection was closed and is made again": closed(four_nodes(), C, seconds=1.5),
    "a busy link": connection(four_nodes(), B, C, retransmitted=132, sent=69657),
    "a starved launcher": on_node(four_nodes(), C, hearing="late", silent=3.1),
}


@pytest.mark.parametrize("scene", QUIET.values(), ids=QUIET.keys())
def test_nothing_is_said_of_a_job_that_is_well(scene: Scene) -> None:
    found = judge(scene)
    assert found is None, found.reason


# --- whatever is seen ----------------------------------------------------------------------------

pairs = st.tuples(st.sampled_from([A, B, C, D]), st.sampled_from([A, B, C, D])).filter(
    lambda pair: pair[0] != pair[1]
)


@st.composite
def scenes(draw: st.DrawFn) -> Scene:
    scene = waiting_nodes(draw(st.floats(0, 40))) if draw(st.booleans()) else four_nodes()
    for pair in draw(st.lists(pairs, max_size=4)):
        scene = unanswered(
            scene,
            *pair,
            seconds=draw(st.floats(0, 40)),
            arrived=draw(st.integers(0, 3)),
            segment=draw(st.sampled_from([536, 1448, 8948])),
        )
    for name in draw(st.lists(st.sampled_from([B, C, D]), max_size=3)):
        scene = on_node(
            scene,
            name,
            hearing=draw(st.sampled_from(["heard", "late", "lost"])),
            silent=draw(st.floats(0, 40)),
            farewell=draw(st.sampled_from(["", "silent", "closed", "left"])),
            machine_answers=draw(st.sampled_from([True, False, None])),
            told_to_stop=draw(st.sampled_from(["", "", "SIGTERM", "SIGINT"])),
        )
    return scene


@st.composite
def networks(draw: st.DrawFn) -> NodesFacts:
    facts = paths(PATHS, draw(st.lists(pairs, max_size=5)))
    for pair in draw(st.lists(pairs, max_size=2)):
        facts = sizes(facts, *pair, datagrams=probes(1500, 9000))
        facts = loss(facts, *pair, arrived=draw(st.integers(1, 40)), answered=1)
    return cut(facts, [A, B], [C, D]) if draw(st.booleans()) else facts


NETWORK = {"peer-unreachable", "mtu-black-hole", "packet-loss", "network-partition"}


@given(scene=scenes(), facts=networks(), ago=st.floats(0.0, 30.0))
def test_no_path_is_named_without_both_witnesses(
    scene: Scene, facts: NodesFacts, ago: float
) -> None:
    """What the kernel shows and what was tried: neither alone names a path."""
    for alone in (scene, tried(unsick(scene), facts, ago=ago)):
        found = judge(alone)
        assert found is None or not found.paths, found.reason
    found = judge(tried(scene, facts, ago=ago))
    if found is not None and found.paths and found.certain:
        assert found.slug in NETWORK
        assert set(found.about_hosts) <= {n.name for n in scene.nodes if n.hearing == "heard"}
        assert not found.ranks


def unsick(scene: Scene) -> Scene:
    """The same, and every connection is well."""
    for pair in [(one, other) for one in (A, B, C, D) for other in (A, B, C, D) if one != other]:
        scene = connection(scene, *pair, backoff=0, unanswered=0.0, retransmitted=0, sent=9)
    return scene


@given(scene=scenes(), facts=networks(), ago=st.floats(0.0, 30.0), on=st.floats(0.1, 60.0))
def test_few_paths_are_tried_and_not_without_end(
    scene: Scene, facts: NodesFacts, ago: float, on: float
) -> None:
    wanted = suspected_paths.find(tried(scene, facts, ago=ago))
    assert len(wanted) <= suspected_paths.MOST
    heard = {node.name for node in scene.nodes if node.hearing == "heard"}
    assert all({*pair} <= heard and pair[0] != pair[1] for pair in wanted)
    just_tried = suspected_paths.find(tried(scene, PATHS, ago=min(on, 1.0)))
    late = any(
        one.unanswered < min(on, 1.0)
        for node in scene.nodes
        if isinstance(node.connections, tuple)
        for one in node.connections
        if one.backoff
    )
    assert late or not just_tried
