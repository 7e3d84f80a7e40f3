from __future__ import annotations

from holdfast.analysis.machine import Address, Interface, MachineFacts, Unread
from holdfast.analysis.nodes import NodesFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_loopback, a_machine, a_plan, an_interface, settings
from tests.faults.made_nodes import data_interface, on_node, replace, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)


def having(*interfaces: Interface) -> MachineFacts:
    return a_machine(TWO_NODES, interfaces=(a_loopback(), *interfaces))


def at(name: str, ip: str, prefix: int, kind: str = "physical") -> Interface:
    return an_interface(name, addresses=(Address(ip=ip, prefix=prefix),), kind=kind)


ETH0 = at("eth0", "10.0.0.5", 24)

test_check = check_table(
    "overlapping-subnets",
    speaks(
        "warning",
        having(ETH0, at("eth1", "10.0.0.6", 24)),
        saying=["eth0, eth1 share the subnet 10.0.0.0/24", "eth1 has 10.0.0.6/24", "ip route get"],
        not_saying=["a job on one machine"],
    ),
    speaks(
        "warning",  # one inside the other: the narrower route wins, whichever was chosen
        having(ETH0, at("eth1", "10.9.0.6", 8)),
        saying=["eth0, eth1 share the subnet 10.0.0.0/8"],
    ),
    speaks(
        "warning",
        having(*(at(f"ib{n}", f"10.0.0.{n + 1}", 24) for n in range(4))),
        saying=["ib0, ib1, ib2, ib3 share", "only RDMA uses them"],
    ),
    speaks(
        "warning",
        having(at("eth0", "fd00::5", 64), at("eth1", "fd00::6", 64)),
        saying=["eth0, eth1 share the subnet fd00::/64"],
    ),
    speaks(
        "warning",  # inside a namespace or container every interface is a veth
        having(at("e0", "10.0.0.5", 24, "veth"), at("e1", "10.0.0.6", 24, "veth")),
        saying=["e0, e1 share"],
    ),
    speaks(
        "note",
        a_machine(interfaces=(ETH0, at("eth1", "10.0.0.6", 24))),
        saying=["a job on one machine is not affected"],
    ),
    silent(having(ETH0, at("eth1", "10.0.1.6", 24))),
    silent(having(ETH0, at("eth1", "10.0.0.6", 32))),  # a single address brings no subnet
    silent(having(at("eth0", "fe80::1", 64), at("eth1", "fe80::2", 64))),
    silent(having(at("eth0", "fe80::1%eth0", 64), at("eth1", "169.254.0.9", 16))),
    silent(having(at("br0", "10.0.0.1", 24, "bridge"), at("v1", "10.0.0.2", 24, "veth"))),
    silent(  # two addresses on one interface
        having(
            an_interface(
                addresses=(Address(ip="10.0.0.5", prefix=24), Address(ip="10.0.0.6", prefix=24))
            )
        )
    ),
    silent(having(ETH0, an_interface("eth1", "10.0.0.6", running=False))),
    skips(a_machine(interfaces=Unread(why="no netlink")), saying=["no netlink"]),
)


# --- explain --------------------------------------------------------------------------

STRAY = "node-a kernel: IPv4: martian source 192.0.2.2 from 192.0.2.7, on dev eth1"
FAILED = "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Connection timed out"
TWO_DOORS = "NCCL INFO NET/Socket : Using [0]eth0:192.0.2.2<0> [1]eth1:192.0.2.3<0>"

test_explain = explain_table(
    "overlapping-subnets",
    recognises(
        wreckage(STRAY, FAILED), sure=0.6, what="eth1", saying=["arrived on eth1", "ip route get"]
    ),
    recognises(wreckage(STRAY), sure=0.4, what="eth1", saying=["dropped packets from 192.0.2.7"]),
    recognises(
        wreckage(TWO_DOORS, FAILED),
        sure=0.3,
        what="eth0 and eth1",
        saying=["look like one subnet"],
    ),
    passes_over(wreckage(TWO_DOORS)),
    passes_over(
        wreckage(
            "NCCL INFO NET/Socket : Using [0]eth0:192.0.2.2<0> [1]eth1:198.51.100.3<0>", FAILED
        )
    ),
)


# --- between nodes -------------------------------------------------------------------------------

THREE = some_nodes(3)
BESIDE = at("eth1", "10.0.9.1", 16)


def leaving(facts: NodesFacts, source: str, interface: str) -> NodesFacts:
    assert not isinstance(facts.routes, Unread)
    routes = tuple(
        replace(one, interface=interface) if one.source == source else one for one in facts.routes
    )
    return replace(facts, routes=routes)


TWO_IN_ONE = on_node(THREE, "node-a", interfaces=(a_loopback(), data_interface(0), BESIDE))

test_check_nodes = between.table(
    "overlapping-subnets",
    between.speaks(
        "warning",
        leaving(TWO_IN_ONE, "node-a", "eth1"),
        saying=[
            "node-a sends to other nodes by eth1, while ranks announce eth0",
            "eth0 and eth1 are in one subnet",
            "node-a: 10.0.0.2 of node-b dev eth1 src 10.0.0.1",
            "NCCL_SOCKET_IFNAME==eth1` on node-a",
        ],
        hosts=["node-a"],
    ),
    between.speaks(  # a VPN that takes the whole network
        "warning",
        leaving(THREE, "node-a", "tun0"),
        saying=["by tun0, while ranks announce eth0", "more specific"],
        hosts=["node-a"],
    ),
    between.silent(THREE),
    between.silent(TWO_IN_ONE),  # the route takes the announced one
    between.silent(  # another subnet: its route is the default one
        on_node(
            leaving(THREE, "node-a", "eth1"),
            "node-a",
            interfaces=(a_loopback(), at("eth0", "192.168.3.4", 24), at("eth1", "172.20.0.9", 24)),
            settings=settings(NCCL_SOCKET_IFNAME="=eth0"),
        )
    ),
    between.skips(replace(THREE, routes=Unread(why="no netlink")), saying=["no netlink"]),
    between.skips(replace(THREE, routes=()), saying=["no route between two nodes"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)
