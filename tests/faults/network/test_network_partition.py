from __future__ import annotations

from holdfast.analysis.logs.patterns.dead_connections import DIED_IN_USE
from holdfast.analysis.logs.wreckage import LogLine, Sighting, Wreckage
from holdfast.analysis.machine import Unread
from holdfast.faults.network.network_partition import cut_off_from_coordinator
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.made_nodes import cut, name_of, paths, replace, some_nodes, untried
from tests.faults.table import explain_table, notices, overlooks, passes_over, recognises, run_table
from tests.run.node_scenes import (
    PATHS,
    four_nodes,
    gone_silent,
    tried,
    unanswered,
    unanswered_both_ways,
    waiting_nodes,
)

A, B, C, D, E, F = map(name_of, range(6))
SIX = some_nodes(6)

test_check_nodes = between.table(
    "network-partition",
    between.speaks(
        "error",
        cut(some_nodes(4), [A, C], [B, D]),
        saying=[
            "2 islands: node-a and node-c | node-b and node-d",
            "connect to 10.0.0.2 port 40001 (eth0 of node-b): ETIMEDOUT",
            "`tracepath -n 10.0.0.2` on node-a",
            "(dropped)",
        ],
        hosts=[""],
    ),
    between.speaks(
        "error",
        cut(cut(SIX, [A, B], [C, D, E, F]), [C, D], [E, F]),
        saying=["3 islands: node-a and node-b | node-c and node-d | node-e and node-f"],
    ),
    between.speaks(  # islands and one node that is alone
        "error",
        cut(cut(SIX, [A, B], [C, D, E, F]), [F], [C, D, E]),
        saying=["3 islands: node-c, node-d and node-e | node-a and node-b | node-f"],
    ),
    between.silent(cut(SIX, [F], [A, B, C, D, E])),  # one node alone: peer-unreachable
    between.silent(cut(some_nodes(2), [A], [B])),
    between.silent(SIX),
    between.silent(cut(SIX, [A], [B])),  # each still reaches all others
    between.silent(paths(SIX, [(a, b) for a in (A, B, C) for b in (D, E, F)])),  # one way only
    between.silent(untried(cut(SIX, [A, B, C], [D, E, F]), A, F)),  # not tried: not proven apart
    between.not_applicable(some_nodes(1), saying=["one node"]),
    between.skips(replace(SIX, reach=Unread(why="no listener")), saying=["no listener"]),
)

DOWN = "node-a kernel: mlx5_core 0000:18:00.0 ens3f0np0: Link down"
FAILED = "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Connection timed out"


def lost(host: str, peer: str) -> Sighting:
    line = LogLine(text=f"Call to recv from {peer}<1> failed", source=host, number=1, host=host)
    return Sighting(
        pattern=DIED_IN_USE.name,
        slug=DIED_IN_USE.slug,
        role=DIED_IN_USE.role,
        line=line,
        fields={"address": peer},
    )


SPLIT = cut(PATHS, [A, B], [C, D])

test_run = run_table(
    "network-partition",
    notices(
        gone_silent(gone_silent(four_nodes(), C, seconds=7.6), D, seconds=8.0),
        ranks=[4, 5, 6, 7],
        hosts=[C, D],
        victims=[0, 1, 2, 3],
        certain=True,
        saying=[
            (
                "nodes node-c and node-d (ranks 4-7) went silent within 0.4 s of each other, 8.0 s "
                "ago, while nodes node-a and node-b (ranks 0-3) hear each other"
            ),
            "2 machines that go down at once look the same from here",
            "`tracepath -n 10.0.0.3` on node-a",
        ],
    ),
    notices(  # the coordinator itself is cut off
        gone_silent(four_nodes(), B, C, D),
        ranks=[2, 3, 4, 5, 6, 7],
        hosts=[B, C, D],
        victims=[0, 1],
        certain=True,
        saying=["node-a hears no other node: node-a itself is cut off from the network"],
    ),
    notices(  # the launchers hear each other by another network than the ranks use
        tried(unanswered_both_ways(waiting_nodes(8.0), B, C), SPLIT),
        ranks=[],
        paths=[(B, C), (C, B)],
        certain=True,
        saying=["2 islands: node-a and node-b | node-c and node-d", "all_reduce #101"],
    ),
    # One alone is a lost node; ten seconds apart, and machines that answer, are no split.
    overlooks(gone_silent(four_nodes(), C)),
    overlooks(gone_silent(gone_silent(four_nodes(), C, seconds=17.0), D)),
    overlooks(gone_silent(four_nodes(), C, D, machine_answers=True)),
    overlooks(gone_silent(four_nodes(), C, D, farewell="closed")),
    overlooks(gone_silent(four_nodes(), C, D, hearing="late", seconds=4.0)),
    # A flap: the try began too early to see its end.
    overlooks(tried(unanswered(waiting_nodes(8.0), B, C), SPLIT, ago=5.0)),
    overlooks(four_nodes()),
)


def test_a_node_of_the_smaller_side_says_who_is_with_whom() -> None:
    said = cut_off_from_coordinator(
        own="d", coordinator="a", reached=["c"], unreached=["b"], words="", silent=7.4
    )
    assert said.hosts == ("a", "b")
    assert said.fatal
    assert "d and c reach each other, but not a and b" in said.reason
    assert "2 machines that go down at once look the same" in said.reason
    alone = cut_off_from_coordinator(
        own="d", coordinator="a", reached=[], unreached=["b", "c"], words="", silent=7.4
    )
    assert "d reaches no other node (a, b and c)" in alone.reason
    assert "d itself is cut off" in alone.reason


test_explain = explain_table(
    "network-partition",
    recognises(
        wreckage(DOWN, FAILED),
        sure=0.7,
        what="ens3f0np0",
        saying=["the link of ens3f0np0 went down"],
    ),
    recognises(wreckage(DOWN), sure=0.4, what="ens3f0np0", saying=["ethtool ens3f0np0"]),
    recognises(
        Wreckage(sightings=(lost("node-a", "192.0.2.7"), lost("node-b", "192.0.2.2"))),
        sure=0.45,
        what="path between the hosts",
        saying=["node-a and node-b lost each other"],
    ),
    passes_over(Wreckage(sightings=(lost("node-a", "192.0.2.7"),))),
    passes_over(wreckage(FAILED)),
)
