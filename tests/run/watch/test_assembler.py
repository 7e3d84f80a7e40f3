"""One scene from the reports of all nodes."""

from __future__ import annotations

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.scene.scene import RankView
from holdfast.run.nodes.messages import NodeReport, ToldToStop
from holdfast.run.watch import assembler
from holdfast.run.watch.peers import PeerState
from tests.run.peers_in_memory import a_round
from tests.run.scenes import a_rank

ROUND = a_round(a=1, b=2, c=1)


def a_report(*ranks: RankView, **changes: object) -> NodeReport:
    return msgspec.structs.replace(NodeReport(round=1, at=50.0, ranks=ranks), **changes)


def test_ranks_of_all_nodes_are_in_it_and_a_node_without_a_report_is_too() -> None:
    own = a_report(a_rank(0, host="a"), evidence_at=9.0, evidence_wall=109.0)
    scene = assembler.with_peers(
        assembler.scene_of_node(own, 0, 1.0),
        own,
        ROUND,
        {
            "b": PeerState(
                hearing="late",
                silent=3.0,
                told=ToldToStop(signal="SIGTERM"),
                report=a_report(
                    a_rank(2, host="b"),
                    a_rank(1, host="b"),
                    clock_bound=0.01,
                    evidence_at=8.0,
                    evidence_wall=108.0,
                ),
            ),
            "c": PeerState(hearing="heard", silent=0.1),
        },
    )
    assert [view.rank for view in scene.ranks] == [0, 1, 2]
    a, b, c = scene.nodes
    assert (a.name, a.coordinates, a.serves_store, a.ranks) == ("a", True, True, (0,))
    assert (b.hearing, b.silent, b.told_to_stop, b.clock_bound) == ("late", 3.0, "SIGTERM", 0.01)
    assert (c.name, c.ranks, c.heard_at) == ("c", (3,), 0.0)
    assert (scene.evidence_at, scene.evidence_wall) == (8.0, 108.0), "the oldest look counts"


@given(st.floats(0, 100), st.floats(0, 100))
def test_a_wait_is_never_taken_for_older_than_any_node_saw(own_at: float, other_at: float) -> None:
    own = a_report(a_rank(0), evidence_at=own_at, evidence_wall=own_at + 1000)
    other = a_report(a_rank(1), evidence_at=other_at, evidence_wall=other_at + 1000)
    states = {"b": PeerState(hearing="heard", silent=0.0, report=other)}
    scene = assembler.with_peers(
        assembler.scene_of_node(own, 0, 1.0), own, a_round(a=1, b=1), states
    )
    taken = [at for at in (own_at, other_at) if at]
    assert scene.evidence_at == (min(taken) if own_at else 0.0)
