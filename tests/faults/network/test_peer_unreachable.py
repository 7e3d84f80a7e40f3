from __future__ import annotations

from holdfast.analysis.machine import PortRanges, Security, Unread
from holdfast.analysis.nodes import NodesFacts, NotListening, Outcome, PortKind
from holdfast.analysis.scene.scene import Scene
from holdfast.catalogue import by_slug
from holdfast.findings import Status
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_loopback, an_interface
from tests.faults.made_nodes import (
    cut,
    data_interface,
    name_of,
    on_all,
    on_node,
    path,
    paths,
    replace,
    some_nodes,
)
from tests.faults.table import explain_table, notices, overlooks, passes_over, recognises, run_table
from tests.run.node_scenes import (
    PATHS,
    blind,
    connection,
    four_nodes,
    gone_silent,
    tried,
    unanswered,
    unanswered_both_ways,
    waiting_nodes,
)

A, B, C, D = map(name_of, range(4))
OTHERS = (A, B, D)
FIREWALLD = Security(selinux="absent", denials=(), firewall="firewalld active", rules=9)
RANGES = PortRanges(ephemeral_low=20000, ephemeral_high=30000, reserved=(), first_unprivileged=0)
FOUR = some_nodes(4)
PROHIBITED = "ICMP 'administratively prohibited' from 2001:db8::2"
TAKEN = NotListening(
    node=B,
    interface="eth0",
    address="10.0.0.2",
    port=29500,
    kind=PortKind.MASTER,
    why="EADDRINUSE: Address already in use",
)


def without_recorders(scene: Scene) -> Scene:
    unread = {"recorder": Unread(why="no answer"), "stack": Unread(why="no permission")}
    return replace(scene, ranks=tuple(replace(view, **unread) for view in scene.ranks))


BROKEN = paths(PATHS, [(B, C), (C, B)])
WAITING = waiting_nodes(8.0)
ONE_WAY = unanswered(unanswered(WAITING, B, C, arrived=3), C, B)

test_run = run_table(
    "peer-unreachable",
    notices(
        tried(unanswered_both_ways(WAITING, B, C), BROKEN),
        ranks=[],
        paths=[(B, C), (C, B)],
        victims=range(8),
        certain=True,
        saying=[
            (
                "node node-b ↔ node node-c (10.0.0.2 ↔ 10.0.0.3): ranks 2,4 have had no answer for "
                "8.0 s, and a new connection is dropped"
            ),
            "ranks 0-7 wait in all_reduce #101",
            "262144 bytes not acknowledged, sent again 5 times in a row",
        ],
    ),
    notices(  # node-b still gets what node-c sends again and again
        tried(ONE_WAY, BROKEN),
        ranks=[],
        paths=[(B, C)],
        certain=True,
        saying=[
            "node node-b → node node-c (10.0.0.2 → 10.0.0.3): rank 2 has had no answer",
            "what comes back arrives, so that one direction is broken",
        ],
    ),
    notices(
        tried(unanswered(WAITING, B, C), path(PATHS, B, C, Outcome.NO_ROUTE)),
        ranks=[],
        paths=[(B, C)],
        certain=True,
        saying=["a new connection is no route", "`ip route get 10.0.0.3`"],
    ),
    notices(  # all paths of one node but the coordinator's: that node is named
        tried(
            unanswered_both_ways(unanswered_both_ways(WAITING, D, C), B, C),
            paths(BROKEN, [(D, C), (C, D)]),
        ),
        ranks=[],
        paths=[(B, C), (C, B), (C, D), (D, C)],
        certain=True,
        saying=["node-b ↔ node-c, node-c ↔ node-d: "],
    ),
    notices(  # no rank is seen in a collective
        tried(unanswered(without_recorders(WAITING), B, C), path(PATHS, B, C)),
        ranks=[],
        paths=[(B, C)],
        certain=False,
        saying=["no step for 8.0 s"],
    ),
    notices(  # a firewall that forgot the connections in use
        tried(unanswered(waiting_nodes(25.0), B, C, seconds=24.0), PATHS),
        ranks=[],
        paths=[(B, C)],
        certain=False,
        saying=["on connections in use, while new ones pass", "conntrack"],
    ),
    notices(  # RDMA: the kernel sees no connection of the ranks
        tried(blind(WAITING), path(PATHS, B, C)),
        ranks=[],
        paths=[(B, C)],
        certain=False,
        saying=["the kernel does not show the ranks' own connections"],
    ),
    overlooks(four_nodes()),
    overlooks(WAITING),
    overlooks(tried(WAITING, PATHS)),
    # Not confirmed, confirmed by a try that began too early, or not for long enough: a flap.
    overlooks(unanswered_both_ways(WAITING, B, C)),
    overlooks(tried(unanswered_both_ways(WAITING, B, C), PATHS)),
    overlooks(tried(unanswered_both_ways(WAITING, B, C), BROKEN, ago=5.0)),
    overlooks(tried(unanswered_both_ways(WAITING, B, C, seconds=6.0), BROKEN, ago=1.0)),
    # The path is broken, and no rank sends anything there.
    overlooks(tried(WAITING, BROKEN)),
    # Twice in a row without an answer happens on a busy machine.
    overlooks(tried(connection(WAITING, B, C, backoff=2, unanswered=9.0, unsent=9), BROKEN)),
    # A node that is not heard: everything sent to it stays unanswered.
    overlooks(tried(unanswered(gone_silent(WAITING, C), B, C), BROKEN)),
    overlooks(
        tried(
            unanswered(gone_silent(WAITING, C, hearing="late", farewell="", seconds=4.0), B, C),
            BROKEN,
        )
    ),
    # Islands have a name of their own.
    overlooks(tried(unanswered_both_ways(WAITING, B, C), cut(PATHS, [A, B], [C, D]))),
)


test_check_nodes = between.table(
    "peer-unreachable",
    between.speaks(  # nft drop in one direction
        "error",
        path(FOUR, A, B, seconds=2.0),
        saying=[
            "node-a → node-b is blocked: dropped; the way back passes",
            "connect to 10.0.0.2 port 40001 (eth0 of node-b): ETIMEDOUT after 2.0 s",
            "looks like a hang",
            "on node-b: `sudo ufw allow from 10.0.0.0/16`",
        ],
        hosts=[""],
    ),
    between.speaks(
        "error",
        path(on_node(FOUR, B, security=FIREWALLD), A, B, Outcome.REJECTED),
        saying=["blocked: rejected", "a firewall rejects", "firewall-cmd", "10.0.0.0/16"],
        not_saying=["dropped"],
    ),
    between.speaks(
        "error",
        path(FOUR, A, B, Outcome.NO_NEIGHBOUR),
        saying=["no neighbour", "no machine answered", "check the link of node-b"],
    ),
    between.speaks(
        "error",
        path(FOUR, A, B, Outcome.REJECTED, error="EPERM: Operation not permitted"),
        saying=["a firewall rule on the source itself", "the rule on node-a that forbids it"],
    ),
    between.speaks(  # what an IPv6 'administratively prohibited' of node-b becomes
        "error",
        path(FOUR, A, B, Outcome.REJECTED, error=f"EACCES: Permission denied; {PROHIBITED}"),
        saying=["a firewall rejects"],
        not_saying=["on the source itself"],
    ),
    between.speaks(
        "error", path(FOUR, A, B, Outcome.REFUSED), saying=["refused", "although a listener was"]
    ),
    between.speaks(
        "error",
        path(FOUR, A, B, Outcome.NO_ROUTE),
        saying=["no route", "on node-a run `ip route get 10.0.0.2`"],
    ),
    between.speaks(
        "error",
        cut(FOUR, [A], [B]),
        saying=["node-a ↔ node-b is blocked: dropped"],
        not_saying=["the way back"],
    ),
    between.speaks(
        "error",
        paths(FOUR, [(C, other) for other in OTHERS]),
        saying=["all paths from node-c are blocked", "the firewall of node-c first"],
        hosts=[C],
    ),
    between.speaks(
        "error",
        paths(FOUR, [(other, C) for other in OTHERS]),
        saying=["all paths to node-c are blocked: dropped", "on node-c: `sudo ufw allow"],
        hosts=[C],
    ),
    between.speaks(
        "error",
        cut(FOUR, [C], OTHERS),
        saying=["all paths to and from node-c are blocked", "check the link of node-c"],
        hosts=[C],
    ),
    between.speaks(
        "error",
        paths(FOUR, [(a, b) for a in (A, B, C, D) for b in (A, B, C, D) if a != b]),
        saying=["all paths between the nodes are blocked", "on every node"],
        hosts=[""],
    ),
    between.speaks(  # two nodes: neither end is accused
        "error",
        cut(some_nodes(2), [A], [B]),
        saying=["node-a ↔ node-b is blocked"],
        hosts=[""],
    ),
    between.speaks(
        "error",
        path(on_node(FOUR, B, port_ranges=RANGES), A, B, Outcome.DROPPED, PortKind.EPHEMERAL),
        saying=[
            "node-a → node-b is blocked on ephemeral ports (the master port passes): dropped",
            "NCCL and Gloo listen on ports that the kernel picks (20000-30000 on node-b)",
            "sudo ufw allow from 10.0.0.0/16 to any port 20000:30000 proto tcp",
        ],
    ),
    between.speaks(
        "error",
        path(some_nodes(4, master_addr=B), A, B, Outcome.DROPPED, PortKind.MASTER),
        saying=["on the master port 29500: dropped", "a rule for this port"],
    ),
    between.speaks(
        "warning",  # no master is named: it may be another node
        path(FOUR, A, B, Outcome.DROPPED, PortKind.MASTER),
        saying=["it matters if the master is there"],
    ),
    between.silent(path(some_nodes(4, master_addr=C), A, B, Outcome.DROPPED, PortKind.MASTER)),
    between.speaks(  # each outcome has another cause
        "error",
        path(path(FOUR, A, B), C, D, Outcome.REJECTED),
        saying=["node-a → node-b is blocked: dropped", "node-c → node-d is blocked: rejected"],
        count=2,
    ),
    between.silent(FOUR),
    between.silent(cut(FOUR, [A, B], [C, D])),  # a partition is said by network-partition, once
    between.silent(path(FOUR, A, B, Outcome.STRANGER)),  # duplicate-identity says it
    between.skips(
        replace(FOUR, not_listening=(TAKEN,)),
        saying=["no path to the master port of node-b (10.0.0.2) was tried", "EADDRINUSE"],
    ),
    between.silent(replace(some_nodes(4, master_addr=C), not_listening=(TAKEN,))),
    between.not_applicable(some_nodes(1), saying=["one node"]),
    between.skips(replace(FOUR, reach=Unread(why="no listener")), saying=["no listener"]),
    between.skips(replace(FOUR, reach=()), saying=["no path between two nodes was tried"]),
)

NO_ROUTE = "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : No route to host"

test_explain = explain_table(
    "peer-unreachable",
    recognises(
        wreckage(
            "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/"
            "tcp/pair.cc:144] no error"
        ),
        sure=0.35,
        saying=["does not say which pair failed", "GLOO_SOCKET_IFNAME"],
    ),
    recognises(
        wreckage("Message:    connect() to 192.0.2.7:1024 failed"),
        sure=0.3,
        what="192.0.2.7",
        saying=["192.0.2.7 port 1024"],
    ),
    recognises(
        wreckage("[btl_tcp_endpoint.c:649] connect() to 192.0.2.7 failed: No route to host (113)"),
        sure=0.85,
        what="192.0.2.7",
        saying=["ip route get 192.0.2.7"],
    ),
    recognises(
        wreckage("A process or daemon was unable to complete a TCP connection"),
        sure=0.6,
        saying=["packets are dropped"],
    ),
    recognises(
        wreckage(
            'HYDU_sock_connect (sock.c:145): unable to connect from "node-b" to "node-a" '
            "(Connection refused)"
        ),
        sure=0.5,
        what="node-a",
        saying=["nothing listens there"],
    ),
    recognises(
        wreckage(
            "NCCL INFO socketPollConnect: connect returned No route to host, retrying (34/34) "
            "after sleep for 3400 msec"
        ),
        sure=0.85,
        saying=["it cannot be reached"],
    ),
    recognises(
        wreckage(
            "[W socket.cpp:663] [c10d] The client socket has failed to connect to [node-a]:29500 "
            "(system error: 10060 - 由于连接方在一段时间后没有正确答复。)."
        ),
        sure=0.55,
        what="node-a",
        saying=["no reply"],
    ),
    passes_over(wreckage("psycopg2: connect() to the database failed")),
    recognises(
        wreckage(NO_ROUTE),
        sure=0.85,
        what="192.0.2.7",
        victims=[1],
        saying=["rank 1 could not connect to 192.0.2.7 port 43210", "ip route get 192.0.2.7"],
    ),
    recognises(  # a line that was cut
        wreckage("NCCL WARN Net : Connect to 192.0.2.7<43210> failed : No route to"),
        sure=0.85,
        what="192.0.2.7",
        saying=["no route"],
    ),
    recognises(
        wreckage(
            "NCCL INFO ncclOsSocketPollConnect: connect to 192.0.2.7<43210> returned Connection "
            "timed out, retrying (3/34) after sleep for 300 msec"
        ),
        sure=0.6,
        what="192.0.2.7",
        saying=["no reply"],
    ),
    recognises(
        wreckage(
            "NCCL WARN socketPollConnect: Connect to 192.0.2.7<43210> returned 113(No route to "
            "host) errno 115(Operation now in progress)"
        ),
        sure=0.85,
        what="192.0.2.7",
        saying=["no route"],
    ),
    recognises(
        wreckage(
            "[rank1]: NCCL WARN socketStartConnect: Connect to 192.0.2.7<43210> failed : Software "
            "caused connection abort"
        ),
        sure=0.55,
        what="192.0.2.7",
        saying=["NCCL before 2.24"],
    ),
    recognises(
        wreckage("NCCL WARN socketPollConnect: exceeded timeouts (34)"),
        sure=0.6,
        saying=["an address that the log does not show"],
    ),
    recognises(
        wreckage(
            "RuntimeError: [/pytorch/third_party/gloo/gloo/transport/tcp/pair.cc:769] connect "
            "[192.0.2.7]:40001: Connection refused"
        ),
        sure=0.5,
        what="192.0.2.7",
        saying=["nothing listens there"],
    ),
    recognises(
        wreckage(
            "[W socket.cpp:558] [c10d] The client socket has failed to connect to [node-a]:29500 "
            "(errno: 113 - No route to host)."
        ),
        sure=0.75,
        what="node-a",
        saying=["node-a port 29500"],
    ),
    recognises(
        wreckage("node-b: ssh: connect to host node-b port 22: No route to host"),
        sure=0.85,
        what="node-b",
        saying=["node-b port 22"],
    ),
    recognises(
        wreckage(NO_ROUTE, "[rank0]: RuntimeError: Address already in use"),
        sure=0.35,
        what="192.0.2.7",
        saying=["192.0.2.7"],
    ),
    passes_over(
        wreckage("NCCL WARN Net : Connect to 127.0.0.1<43210> failed : Connection refused")
    ),
    passes_over(
        wreckage(
            "The IPv6 network addresses of (node-a, 29500) cannot be retrieved (gai error: -2 - "
            "Name or service not known).",
            "The client socket has timed out after 60s while trying to connect to (node-a, 29500).",
        )
    ),
    passes_over(wreckage("ConnectionRefusedError: [Errno 111] Connection refused")),  # anybody's
    passes_over(wreckage("NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>")),
)


# --- between nodes -------------------------------------------------------------------------------


def second_network(outcome: Outcome) -> NodesFacts:
    """Every node listens on eth1 as well, where every connect ends so."""
    assert not isinstance(FOUR.reach, Unread)
    there = tuple(
        replace(
            one,
            target=replace(
                one.target, address=f"10.9.{one.target.address[7:]}.1", interface="eth1"
            ),
            outcome=outcome,
        )
        for one in FOUR.reach
    )
    facts = on_all(
        FOUR,
        lambda node: {
            "interfaces": (
                a_loopback(),
                data_interface(ord(node.name[-1]) - ord("a")),
                an_interface("eth1", f"10.9.{ord(node.name[-1]) - ord('a') + 1}.1"),
            )
        },
    )
    return replace(facts, reach=(*FOUR.reach, *there))


def test_a_network_that_no_rank_uses_may_be_closed() -> None:
    (finding,) = by_slug("peer-unreachable").ask_nodes(second_network(Outcome.DROPPED))
    assert finding.status is Status.OK


def test_a_blocked_path_in_the_network_that_is_used_is_found_whatever_others_do() -> None:
    open_network = second_network(Outcome.OK).reach
    facts = path(second_network(Outcome.OK), A, B)
    assert not isinstance(open_network, Unread)
    assert not isinstance(facts.reach, Unread)
    eth1 = tuple(one for one in open_network if one.target.interface == "eth1")
    eth0 = tuple(one for one in facts.reach if one.target.interface == "eth0")
    facts = replace(facts, reach=(*eth0, *eth1))
    (finding,) = by_slug("peer-unreachable").ask_nodes(facts)
    assert finding.summary == "node-a → node-b is blocked: dropped; the way back passes"
