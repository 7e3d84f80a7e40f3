"""Scenes of a job on four nodes with two ranks each, to change one thing in.

    scene = on_node(four_nodes(), "node-c", hearing="lost", silent=7.6, farewell="silent")
    scene = unanswered(waiting_nodes(8.0), B, C, seconds=8.0)     # rank 2's connection to node-c
    scene = tried(scene, path(PATHS, B, C))                       # and what nodes saw of the paths

The first node coordinates and serves the store, unless a test says otherwise.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import NodesFacts
from holdfast.analysis.scene.node_view import NodeView, PathProbes, RankConnection
from holdfast.analysis.scene.scene import RankView, Scene
from tests.faults.made_nodes import address_of, name_of, some_nodes
from tests.run.scenes import NOW, a_rank, a_scene, held_up

NODES, EACH = 4, 2
A, B, C, D = map(name_of, range(NODES))
PATHS = some_nodes(NODES, mtu=9000)
"""all paths are well: change one, then give it to `tried`"""
replace = msgspec.structs.replace


def a_node_view(number: int, each: int = EACH, **changes: Any) -> NodeView:
    view = NodeView(
        name=name_of(number),
        ranks=tuple(range(number * each, (number + 1) * each)),
        heard_at=NOW - 0.1,
        silent=0.1,
        coordinates=number == 0,
        serves_store=number == 0,
        addresses=(address_of(number),),
    )
    return replace(view, **changes)


def spread(scene: Scene, each: int = EACH) -> Scene:
    """The same ranks, so many on a node."""
    count = len(scene.ranks) // each
    ranks = tuple(
        replace(view, host=name_of(view.rank // each), local_rank=view.rank % each)
        for view in scene.ranks
    )
    nodes = tuple(
        a_node_view(n, each, connections=tuple(a_connection(n, m) for m in range(count) if m != n))
        for n in range(count)
    )
    return replace(scene, ranks=ranks, nodes=nodes)


def four_nodes(**changes: Any) -> Scene:
    """Training goes on."""
    return replace(spread(a_scene([a_rank(r) for r in range(NODES * EACH)])), **changes)


def waiting_nodes(seconds: float = 8.0, nodes: int = NODES, **changes: Any) -> Scene:
    """All ranks have been in all_reduce #101 for so long; no rank is missing."""
    return replace(spread(held_up({}, seconds=seconds, ranks=nodes * EACH)), **changes)


def on_node(scene: Scene, name: str, **changes: Any) -> Scene:
    nodes = tuple(replace(n, **changes) if n.name == name else n for n in scene.nodes)
    return replace(scene, nodes=nodes)


def of_node(scene: Scene, name: str, **changes: Any) -> Scene:
    """Change all ranks of a node."""

    def changed(view: RankView) -> RankView:
        return replace(view, **changes) if view.host == name else view

    return replace(scene, ranks=tuple(map(changed, scene.ranks)))


def gone_silent(scene: Scene, *names: str, seconds: float = 7.6, **changes: Any) -> Scene:
    for name in names:
        scene = on_node(
            scene,
            name,
            **{"hearing": "lost", "farewell": "silent", "silent": seconds, **changes},
        )
    return scene


def closed(scene: Scene, name: str, seconds: float = 2.3, **changes: Any) -> Scene:
    return on_node(
        scene,
        name,
        **{
            "hearing": "late",
            "farewell": "closed",
            "farewell_words": "Connection reset by peer",
            "silent": seconds,
            "machine_answers": True,
            **changes,
        },
    )


# --- connections ---------------------------------------------------------------------------------


def a_connection(source: int, target: int, **changes: Any) -> RankConnection:
    """Busy and well: a few segments of thousands are sent again."""
    connection = RankConnection(
        rank=source * EACH,
        node=name_of(target),
        local=address_of(source),
        peer=address_of(target),
        peer_port=40000 + target,
        unsent=0,
        backoff=0,
        retransmitted=9,
        sent=7000,
        arrived=7000,
        segment=8948,
    )
    return replace(connection, **changes)


def connection(scene: Scene, source: str, target: str, **changes: Any) -> Scene:
    """Change the one from the first rank of `source` to `target`."""
    node = scene.node(source)
    assert node is not None
    assert isinstance(node.connections, tuple)
    kept = tuple(replace(one, **changes) if one.node == target else one for one in node.connections)
    return on_node(scene, source, connections=kept)


def unanswered(
    scene: Scene, source: str, target: str, seconds: float = 8.0, **changes: Any
) -> Scene:
    """As the kernel shows it: the timer doubles from 0.2 s on."""
    backoff = sum(0.2 * (2**n - 1) <= seconds for n in range(1, 16))
    silent = {
        "backoff": backoff,
        "unanswered": seconds,
        "unsent": 262144,
        "retransmitted": 1,
        "sent": 1,
        "arrived": 0,
    }
    return connection(scene, source, target, **{**silent, **changes})


def unanswered_both_ways(scene: Scene, one: str, other: str, seconds: float = 8.0) -> Scene:
    return unanswered(unanswered(scene, one, other, seconds), other, one, seconds)


def blind(scene: Scene) -> Scene:
    """No kernel lists its connections."""
    for node in scene.nodes:
        scene = on_node(scene, node.name, connections=Unread(why="no INET_DIAG"))
    return scene


def tried(scene: Scene, facts: NodesFacts, ago: float = 3.0) -> Scene:
    """The nodes began to try all paths so many seconds ago."""
    assert not isinstance(facts.reach, Unread)
    assert not isinstance(facts.sizes, Unread)
    assert not isinstance(facts.losses, Unread)
    probes = PathProbes(at=NOW - ago, reach=facts.reach, sizes=facts.sizes, losses=facts.losses)
    return replace(scene, probes=probes)
