from __future__ import annotations

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import NodesFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.made_nodes import loss, name_of, replace, some_nodes
from tests.faults.table import explain_table, notices, overlooks, passes_over, recognises, run_table
from tests.run.node_scenes import (
    PATHS,
    connection,
    four_nodes,
    tried,
    unanswered,
    waiting_nodes,
)

A, B, C, D = map(name_of, range(4))
FOUR = some_nodes(4)


def one_way(facts: NodesFacts, source: str, target: str, *, of_40: int) -> NodesFacts:
    """Probes get lost on their way there, and answers of the source to probes of the target."""
    facts = loss(facts, source, target, arrived=40 - of_40, answered=40 - of_40)
    return loss(facts, target, source, answered=40 - of_40)


def around(name: str, of_40: int) -> NodesFacts:
    facts = FOUR
    for other in {A, B, C, D} - {name}:
        for source, target in ((name, other), (other, name)):
            facts = loss(facts, source, target, arrived=40 - of_40, answered=40 - 2 * of_40)
    return facts


test_check_nodes = between.table(
    "packet-loss",
    between.speaks(
        "error",
        one_way(FOUR, A, B, of_40=12),
        saying=[
            "node-a → node-b loses 30 % of small datagrams in that direction only",
            "node-a → node-b: 24 of 80 did not arrive",
            "on node-a and node-b: `ip -s link",
        ],
        not_saying=["node-c", "node-b → node-a"],
        hosts=[""],
    ),
    between.speaks(
        "error",
        loss(loss(FOUR, A, B, arrived=28, answered=20), B, A, arrived=28, answered=20),
        saying=["node-a ↔ node-b loses up to 29 %"],
    ),
    between.speaks(  # a cable
        "error",
        around(C, 10),
        saying=["all paths to and from node-c lose up to"],
        hosts=[C],
    ),
    between.speaks(
        "warning",
        loss(loss(FOUR, A, B, arrived=36, answered=36), B, A, answered=37),
        saying=["node-a → node-b loses 9 %", "7 of 80 did not arrive"],
    ),
    between.silent(FOUR),
    between.silent(loss(FOUR, A, B, arrived=39, answered=39)),  # 1 of 40 on a busy machine
    between.silent(loss(FOUR, A, B, arrived=38, answered=37)),
    between.silent(loss(FOUR, A, B, arrived=None, answered=0)),  # nothing passes: unreachable
    between.silent(loss(FOUR, A, B, arrived=0, answered=0)),
    between.not_applicable(some_nodes(1), saying=["one node"]),
    between.skips(replace(FOUR, losses=Unread(why="no time left")), saying=["no time left"]),
    between.skips(
        loss(loss(some_nodes(2), A, B, arrived=None, answered=0), B, A, arrived=0, answered=0),
        saying=["UDP is blocked"],
    ),
)

DIED = (
    "[rank1]: NCCL WARN socketProgressOpt: Call to recv from 192.0.2.7<43210> failed : Connection "
    "timed out"
)

AGAIN = connection(four_nodes(), B, C, retransmitted=1700, sent=5700)
LOST = loss(PATHS, B, C, sent=232, arrived=160, answered=160)

test_run = run_table(
    "packet-loss",
    notices(
        tried(AGAIN, LOST),
        ranks=[],
        paths=[(B, C)],
        victims=range(8),
        certain=False,
        saying=[
            "node node-b → node node-c",
            "(10.0.0.2 → 10.0.0.3): 26 % of small datagrams are lost, and 1700 of 5700 segments",
            "node-b → node-c: 72 of 272 did not arrive",
            "ethtool -S eth0",
        ],
    ),
    notices(  # what gets lost are the answers: the other direction is named
        tried(AGAIN, loss(PATHS, B, C, sent=232, arrived=232, answered=160)),
        ranks=[],
        paths=[(C, B)],
        certain=False,
        saying=["node node-c → node node-b"],
    ),
    notices(  # at 30 % a connection may pause for many seconds
        tried(unanswered(waiting_nodes(9.0), B, C, seconds=9.0), LOST),
        ranks=[],
        paths=[(B, C)],
        certain=False,
        saying=["rank 2 has had no answer for 9.0 s"],
    ),
    overlooks(four_nodes()),
    overlooks(AGAIN),  # not confirmed: a jump in latency makes TCP send again too
    overlooks(tried(AGAIN, PATHS)),
    overlooks(tried(four_nodes(), LOST)),  # nothing of the ranks' own is sent again
    overlooks(tried(connection(four_nodes(), B, C, retransmitted=132, sent=69657), LOST)),
    overlooks(tried(connection(four_nodes(), B, C, retransmitted=1, sent=1), LOST)),
)


test_explain = explain_table(
    "packet-loss",
    recognises(
        wreckage("node-a kernel: NETDEV WATCHDOG: ens3 (mlx5_core): transmit queue 4 timed out"),
        sure=0.6,
        what="ens3",
        saying=["ens3 could not send its packets", "ethtool -S ens3"],
    ),
    recognises(
        wreckage("100 packets transmitted, 87 received, 13% packet loss, time 101376ms"),
        sure=0.6,
        what="path between the hosts",
        saying=["13% of the packets"],
    ),
    recognises(wreckage(DIED), sure=0.3, what="path between the hosts", saying=["retransmissions"]),
    passes_over(wreckage("100 packets transmitted, 100 received, 0% packet loss, time 99ms")),
    passes_over(wreckage(DIED, "[rank0]: RuntimeError: Address already in use")),
)
