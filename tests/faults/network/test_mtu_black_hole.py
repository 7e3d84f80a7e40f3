from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import Unread
from holdfast.analysis.nodes import NodesFacts, SizeProbe
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_loopback
from tests.faults.made_nodes import (
    MESSAGES,
    data_interface,
    loss,
    name_of,
    on_node,
    probes,
    replace,
    sizes,
    some_nodes,
)
from tests.faults.table import explain_table, notices, overlooks, passes_over, recognises, run_table
from tests.run.node_scenes import (
    PATHS,
    four_nodes,
    tried,
    unanswered,
    unanswered_both_ways,
    waiting_nodes,
)

A, B, C, D = map(name_of, range(4))
JUMBO = some_nodes(4, mtu=9000)
PAIRS = [(a, b) for a in (A, B, C, D) for b in (A, B, C, D) if a != b]
SMALL_PASS = probes(1500, mtu=9000)


def messages(arrive: int, **changes: Any) -> tuple[SizeProbe, ...]:
    """TCP messages up to this size arrive."""
    return tuple(
        SizeProbe(bytes=n, arrived=True)
        if n <= arrive
        else replace(
            SizeProbe(bytes=n, arrived=False, error="ETIMEDOUT", acknowledged=0), **changes
        )
        for n in MESSAGES
    )


TCP_HANGS = messages(1024)


def on_paths(facts: NodesFacts, pairs: list[tuple[str, str]], **changes: Any) -> NodesFacts:
    for source, target in pairs:
        facts = sizes(facts, source, target, **changes)
    return facts


def lossy(facts: NodesFacts, arrived: int) -> NodesFacts:
    return loss(facts, A, B, arrived=arrived, answered=arrived)


SHORT = on_node(JUMBO, B, interfaces=(a_loopback(), data_interface(1, mtu=1500)))
"""node-b has 1500, the others 9000"""
DIFFERING = on_paths(
    on_paths(SHORT, [(A, B), (C, B), (D, B)], datagrams=SMALL_PASS),
    [(B, A), (B, C), (B, D)],
    mtu=1500,
    datagrams=probes(1500),
)


def with_second_network(facts: NodesFacts, mtus: dict[str, int]) -> NodesFacts:
    """The same paths once more, by ib0, whose MTU each node has chosen."""
    for node, mtu in mtus.items():
        own = facts.node(node).facts.interfaces
        assert not isinstance(own, Unread)
        ib0 = replace(own[-1], name="ib0", mtu=mtu)
        facts = on_node(facts, node, interfaces=(*own, ib0))
    assert not isinstance(facts.sizes, Unread)
    second = (
        replace(
            path,
            target=replace(path.target, interface="ib0"),
            interface="ib0",
            mtu=mtus[path.source],
            datagrams=probes(min(mtus[path.source], mtus[path.target.node]), mtus[path.source]),
        )
        for path in facts.sizes
    )
    return replace(facts, sizes=(*second, *facts.sizes))


test_check_nodes = between.table(
    "mtu-black-hole",
    between.speaks(  # ends at 9000, the bridge between them at 1500
        "error",
        on_paths(JUMBO, PAIRS, datagrams=SMALL_PASS, messages=TCP_HANGS),
        saying=[
            "all paths between the nodes drop packets from 4000 bytes on",
            "1500 pass, and the MTU is 9000",
            "the first large collective never ends",
            "`sudo ip link set eth0 mtu 1500` on node-a, node-b, node-c and node-d",
            "node-a → node-b by eth0 (MTU 9000): 576-1500 bytes arrived",
            "4000 and 9000 bytes did not; TCP hung from 64 KiB on",
        ],
    ),
    between.speaks(
        "error",
        on_paths(JUMBO, [(A, B)], datagrams=SMALL_PASS, messages=TCP_HANGS),
        saying=["node-a → node-b drops packets from 4000", "on node-a and node-b"],
        not_saying=["node-c"],
        hosts=[""],
    ),
    between.speaks(  # one port of the switch
        "error",
        on_paths(JUMBO, [p for p in PAIRS if C in p], datagrams=SMALL_PASS, messages=TCP_HANGS),
        saying=["all paths to and from node-c drop packets"],
        hosts=[C],
    ),
    between.speaks(
        "warning",
        on_paths(JUMBO, [(A, B)], datagrams=SMALL_PASS),
        saying=["TCP messages of every size arrived", "MSS clamping"],
    ),
    between.speaks(
        "warning",
        on_paths(JUMBO, [(A, B)], datagrams=SMALL_PASS, messages=()),
        saying=["whether TCP gets through was not tried"],
    ),
    between.speaks(
        "error",  # UDP is blocked: TCP alone tells
        on_paths(
            JUMBO,
            [(A, B)],
            datagrams=tuple(replace(p, arrived=False) for p in SMALL_PASS),
            messages=TCP_HANGS,
        ),
        saying=["node-a → node-b drops TCP messages from 64 KiB on", "the size it takes is not"],
    ),
    between.speaks(
        "warning",
        on_paths(JUMBO, [(A, B)], messages=TCP_HANGS),
        saying=["so it is not the MTU", "undecided"],
    ),
    between.speaks(  # a router answers: TCP adapts
        "note",
        on_paths(
            JUMBO,
            [(A, B)],
            datagrams=probes(1500, mtu=1500),
            told_mtu=1500,
            told_by="10.0.0.254",
        ),
        saying=["over 1500 bytes, and 10.0.0.254 says so", "path MTU discovery works"],
    ),
    between.speaks(
        "note",
        DIFFERING,
        saying=["the MTU differs between nodes: 9000 on node-a, node-c and node-d, 1500 on node-b"],
        not_saying=["drop"],
    ),
    between.speaks(  # ends that differ, and less than the smaller one passes
        "error",
        on_paths(DIFFERING, [(A, B)], datagrams=probes(1280, mtu=9000), messages=TCP_HANGS),
        saying=["node-a → node-b drops packets from 1500 bytes on: 1280 pass"],
    ),
    between.silent(JUMBO),
    between.silent(with_second_network(some_nodes(2), {A: 9000, B: 9000})),
    between.speaks(
        "note",
        with_second_network(some_nodes(2), {A: 9000, B: 2044}),
        saying=["the MTU differs between nodes: 2044 on node-b, 9000 on node-a"],
    ),
    between.silent(some_nodes(4)),
    between.silent(  # loss slows TCP down, and part of it is acknowledged
        lossy(on_paths(JUMBO, [(A, B)], messages=messages(1024, acknowledged=40_000)), arrived=28)
    ),
    between.skips(  # or keeps it waiting with nothing acknowledged, also by loss on the way back
        lossy(on_paths(JUMBO, [(A, B), (B, A)], messages=TCP_HANGS), arrived=28),
        saying=["node-a ↔ node-b: too much is lost to tell by size"],
    ),
    between.skips(  # a third of everything is lost: a single try proves nothing
        lossy(on_paths(JUMBO, [(A, B)], datagrams=probes(4000, mtu=9000)), arrived=28),
        saying=["node-a → node-b: too much is lost to tell by size"],
    ),
    between.speaks(  # it was sent often enough to tell
        "warning",
        lossy(
            on_paths(
                JUMBO,
                [(A, B)],
                datagrams=tuple(replace(p, tries=12) for p in probes(4000, mtu=9000)),
            ),
            arrived=28,
        ),
        saying=["drops packets from 9000 bytes on: 4000 pass"],
    ),
    between.skips(
        on_paths(JUMBO, [(A, B)], datagrams=(), messages=()), saying=["node-a → node-b: nothing"]
    ),
    between.not_applicable(some_nodes(1), saying=["one node"]),
    between.skips(replace(JUMBO, sizes=Unread(why="no time left")), saying=["no time left"]),
    between.skips(replace(JUMBO, sizes=()), saying=["no path between two nodes was tried"]),
)

DIED = "[rank{}]: NCCL WARN socketProgressOpt: Call to recv from 192.0.2.7<43210> failed : {}"
COMPLETE = (
    "[rank0]: NCCL INFO comm 0x1b67ca30 rank 0 nranks 4 cudaDev 0 busId 3d000 - Init COMPLETE"
)

WAITING = waiting_nodes(5.0)
SILENT = unanswered(WAITING, B, C, seconds=4.5)
STUCK_MESSAGES = (
    SizeProbe(bytes=1024, arrived=True),
    SizeProbe(bytes=65536, arrived=False, error="ETIMEDOUT", tries=5, acknowledged=0),
)
HOLE = sizes(PATHS, B, C, datagrams=probes(1500, 9000), messages=STUCK_MESSAGES)
SMALL = sizes(PATHS, B, C, datagrams=probes(1500, 9000))

test_run = run_table(
    "mtu-black-hole",
    notices(
        tried(SILENT, HOLE),
        ranks=[],
        paths=[(B, C)],
        victims=range(8),
        certain=True,
        saying=[
            "node node-b → node node-c (10.0.0.2 → 10.0.0.3) drops packets from 4000 bytes on",
            "1500 pass, and the MTU is 9000; segments of 8948 bytes from rank 2 have had no answer",
            "ranks 0-7 wait in all_reduce #101",
            "`sudo ip link set eth0 mtu 1500` on node-b and node-c",
        ],
    ),
    notices(
        tried(
            unanswered_both_ways(WAITING, B, C, seconds=4.5),
            sizes(HOLE, C, B, datagrams=probes(1500, 9000), messages=STUCK_MESSAGES),
        ),
        ranks=[],
        paths=[(B, C), (C, B)],
        certain=True,
        saying=["node node-b ↔ node node-c"],
    ),
    # TCP as it was tried gets through: the connections in use may not know the smaller size.
    notices(tried(SILENT, SMALL), ranks=[], paths=[(B, C)], certain=False, saying=["1500 pass"]),
    overlooks(four_nodes()),
    overlooks(tried(WAITING, HOLE)),  # the hole is there, and no rank sends into it
    overlooks(tried(SILENT, PATHS)),
    overlooks(SILENT),
    overlooks(tried(unanswered(WAITING, B, C, seconds=2.0), HOLE, ago=1.0)),
    # Its segments are small enough: something else keeps them from being answered.
    overlooks(tried(unanswered(WAITING, B, C, seconds=4.5, segment=1400), HOLE)),
    overlooks(tried(SILENT, HOLE, ago=6.0)),  # tried before the silence began
)


test_explain = explain_table(
    "mtu-black-hole",
    recognises(
        wreckage(COMPLETE, DIED.format(1, "Connection timed out")),
        sure=0.7,
        what="path between the hosts (192.0.2.7)",
        victims=[1],
        saying=["went silent on rank 1 towards 192.0.2.7", "ping -M do -s 8972 -c 3 192.0.2.7"],
    ),
    recognises(
        wreckage(
            DIED.format(0, "Connection timed out"),
            DIED.format(1, "Connection timed out"),
            world_size=2,
        ),
        sure=0.7,  # both ends live, and tell the same
        what="path between the hosts",
        victims=[0, 1],
        saying=["ranks 0, 1"],
    ),
    recognises(
        wreckage(DIED.format(1, "Connection timed out")),
        sure=0.5,
        what="path between the hosts",
        saying=["large ones did not"],
    ),
    recognises(
        wreckage(COMPLETE, DIED.format(1, "No route to host")),
        sure=0.3,
        what="path between the hosts",
        saying=["192.0.2.7"],
    ),
    recognises(
        wreckage(
            COMPLETE,
            DIED.format(1, "Connection timed out"),
            "[rank2]: RuntimeError: Address already in use",
        ),
        sure=0.3,
        what="path between the hosts",
        saying=["192.0.2.7"],
    ),
    recognises(
        wreckage("From 192.0.2.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)"),
        sure=0.45,
        what="path between the hosts",
        saying=["larger than the MTU of a hop"],
    ),
    passes_over(wreckage(DIED.format(1, "Connection reset by peer"))),
    passes_over(
        wreckage("NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Connection timed out")
    ),
)
