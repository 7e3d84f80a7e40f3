from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.machine import (
    Address,
    Interface,
    MachineFacts,
    Resolution,
    Unread,
)
from holdfast.analysis.nodes import Node, NodesFacts, Outcome, Reached
from holdfast.catalogue import by_slug
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults import between
from tests.faults.machines import (
    a_loopback,
    a_machine,
    a_plan,
    a_port_of,
    an_interface,
    settings,
    software,
)
from tests.faults.made_nodes import (
    address_of,
    data_interface,
    name_of,
    on_all,
    on_node,
    replace,
    some_nodes,
)
from tests.faults.table import (
    check_table,
    explain_table,
    flags,
    leaves,
    lint_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)
from tests.faults.two_hosts import TWO_HOSTS

LO = "[rank0]: NCCL INFO Bootstrap: Using lo:127.0.0.1<0>"
REFUSED = (
    "[rank1]: NCCL INFO socketPollConnect: connect to 127.0.0.1<57525> returned Connection "
    "refused, retrying (1/34) after sleep for 100 msec"
)
STUCK = (
    "[rank1]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=1, OpType=ALLREDUCE, "
    "NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)

test_explain = explain_table(
    "wrong-nic",
    recognises(
        wreckage(
            "[a][[38971,1],2][btl_tcp_endpoint.c:796:mca_btl_tcp_endpoint_complete_connect] "
            "connect() to 172.17.0.1 failed: Connection refused (111)"
        ),
        sure=0.6,
        what="docker0",
        saying=["Open MPI connected to 172.17.0.1", "btl_tcp_if_include"],
    ),
    recognises(
        wreckage(
            "Exception: Unable to find a set of common task-to-task communication interfaces: [(0, "
            "{'eth0'})]"
        ),
        sure=0.6,
        saying=["Horovod found no interface", "--network-interfaces"],
    ),
    passes_over(wreckage("connect() to 192.0.2.7 failed: No route to host (113)")),
    recognises(
        wreckage(LO, REFUSED, settings={"NCCL_SOCKET_IFNAME": "^docker0"}),
        sure=0.75,
        what="lo, re-admitted by ^docker0",
        saying=["lo (127.0.0.1)", "replaces NCCL's own rules and admits lo"],
    ),
    recognises(
        wreckage(LO, REFUSED, ranks=TWO_HOSTS),
        sure=0.9,
        what="lo",
        saying=["that other machines cannot reach"],
    ),
    recognises(wreckage(REFUSED), sure=0.6, what="lo", saying=["announced lo"]),
    recognises(
        wreckage(LO, STUCK, ranks=TWO_HOSTS), sure=0.7, what="lo", saying=["NCCL_SOCKET_IFNAME"]
    ),
    recognises(
        wreckage(
            "NCCL INFO Bootstrap : Using [0]docker0:172.17.0.1<0>",
            "NCCL WARN Net : Connect to 172.17.0.1<43210> failed : Connection refused",
        ),
        sure=0.75,
        what="docker0",
        saying=["docker0 (172.17.0.1)"],
    ),
    recognises(
        wreckage(  # NCCL 2.3
            "NCCL INFO NET : Using interface lo:127.0.0.1<0>",
            "NCCL WARN Call to connect timeout : Connection refused",
        ),
        sure=0.75,
        what="lo",
        saying=["lo (127.0.0.1)"],
    ),
    recognises(
        wreckage(LO, REFUSED, settings={"NCCL_SOCKET_IFNAME": "lo"}),
        sure=0.5,  # loopback-multi-node says it better
        what="lo",
        saying=["NCCL_SOCKET_IFNAME=lo"],
    ),
    recognises(
        wreckage(
            "[rank0]: NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>",
            "[rank1]: NCCL INFO Bootstrap: Using eth1:198.51.100.3<0>",
            "[rank1]: NCCL WARN Net : Connect to 192.0.2.2<43210> failed : Connection timed out",
            ranks=TWO_HOSTS,
        ),
        sure=0.5,
        what="eth0, eth1",
        saying=["different networks"],
    ),
    passes_over(wreckage(LO)),  # one machine: it works
    passes_over(wreckage(LO, STUCK)),
    passes_over(
        wreckage(
            "[rank0]: NCCL INFO Bootstrap: Using eth0:192.0.2.2<0>",
            "[rank1]: NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Connection timed out",
        )
    ),
)

test_lint = lint_table(
    "wrong-nic",
    flags(
        "error",
        shell("export NCCL_SOCKET_IFNAME=^docker0\ntorchrun --nnodes=2 train.py"),
        lines=[1],
        saying=["admits the loopback interface", "'^docker0,lo'"],
    ),
    flags(
        "warning",
        shell("export NCCL_SOCKET_IFNAME=^docker,br-"),
        lines=[1],
        saying=["That works on one machine"],
    ),
    flags(
        "warning",
        python('import os\nos.environ["NCCL_SOCKET_IFNAME"] = "^=eth0"'),
        lines=[2],
        saying=["'^=eth0,lo'"],
    ),
    flags(
        "warning",
        shell("export NCCL_SOCKET_IFNAME=eth0,br-1a2b3c\nexport GLOO_SOCKET_IFNAME=docker0"),
        lines=[1, 2],
        saying=["selects br-1a2b3c", "selects docker0", "`ip route get`"],
    ),
    leaves(shell("export NCCL_SOCKET_IFNAME=^docker0,lo\ntorchrun --nnodes=2 train.py")),
    leaves(shell("export NCCL_SOCKET_IFNAME=^lo,docker\ntorchrun --nnodes=2 train.py")),
    leaves(shell("export NCCL_SOCKET_IFNAME==eth0 GLOO_SOCKET_IFNAME=eth0")),
    leaves(shell("export NCCL_SOCKET_IFNAME=bond0,br0")),  # br0 is often a machine's real one
    leaves(shell("export NCCL_SOCKET_IFNAME=docker0\ntorchrun --nnodes=1 train.py")),
    leaves(shell("export GLOO_SOCKET_IFNAME=^docker0,br-7f")),  # nic-filter-syntax
    leaves(shell("export NCCL_SOCKET_IFNAME=^$SKIP NCCL_IB_HCA=^mlx5_2")),
)

TWO_NODES = a_plan(max_nodes=2)
ETH0 = an_interface()
DOCKER = an_interface("docker0", "172.17.0.1", kind="bridge")
NETWORK_OF_A_COMPOSE_FILE = an_interface("br-1a2b", "172.18.0.1", kind="bridge")
VETH = an_interface("veth1f", "10.88.0.1", kind="veth")
TUNNEL = an_interface("tailscale0", "100.64.0.5", kind="virtual")


def across(*interfaces: Interface, **changes: Any) -> MachineFacts:
    """A job on two machines; the default route leaves by eth0."""
    return a_machine(TWO_NODES, **{"interfaces": (a_loopback(), *interfaces), **changes})


def named(*interfaces: Interface, nccl: str = "", gloo: str = "", **changes: Any) -> MachineFacts:
    chosen = {"NCCL_SOCKET_IFNAME": nccl, "GLOO_SOCKET_IFNAME": gloo}
    set_here = {name: value for name, value in chosen.items() if value}
    return across(*interfaces, settings=settings(**set_here), **changes)


def own_name(*ips: str) -> Resolution:
    return Resolution(name="node-a", addresses=ips, error="", seconds=0.0)


NO_NCCL = msgspec.structs.replace(software(nccl=""), nccl=())

test_check = check_table(
    "wrong-nic",
    speaks(
        "error",
        named(DOCKER, ETH0, nccl="^docker0"),
        saying=[
            "NCCL will announce lo (127.0.0.1)",
            "cannot reach it",
            "a filter that only excludes replaces NCCL's own order",
            "docker0: excluded by NCCL_SOCKET_IFNAME=^docker0",
            "eth0: comes after lo, and only the first counts",
            "`export NCCL_SOCKET_IFNAME==eth0`",
        ],
    ),
    speaks(
        "error",
        named(DOCKER, ETH0, nccl="docker0"),
        saying=["NCCL will announce docker0 (172.17.0.1)", "behind NAT"],
    ),
    speaks(
        "warning",  # the setting shows that NCCL is meant, though it is not installed here
        named(DOCKER, ETH0, nccl="docker0", accelerators=(), software=NO_NCCL),
        saying=["announce docker0", "NCCL was not found here"],
    ),
    speaks("error", across(NETWORK_OF_A_COMPOSE_FILE, ETH0), saying=["announce br-1a2b"]),
    speaks("warning", across(VETH, ETH0), saying=["veth1f (10.88.0.1)", "into a container"]),
    speaks("warning", across(TUNNEL, ETH0), saying=["may not reach", "a tunnel of VPN software"]),
    speaks("error", across(), saying=["announce lo", "every usable interface is docker*, lo"]),
    # data is spread over every interface that NCCL admits
    speaks(
        "warning",
        across(ETH0, NETWORK_OF_A_COMPOSE_FILE),
        saying=["send data over br-1a2b (172.18.0.1) too", "`ip route get ADDRESS_OF_A_PEER`"],
    ),
    silent(across(ETH0, NETWORK_OF_A_COMPOSE_FILE, rdma_ports=(a_port_of("mlx5_0"),))),
    silent(across(ETH0, NETWORK_OF_A_COMPOSE_FILE, settings=settings(NCCL_NET="AWS Libfabric"))),
    # what differs between versions
    speaks(
        "warning",
        across(
            an_interface("eth1", "10.1.0.5", running=False), ETH0, software=software(nccl="2.21.5")
        ),
        saying=["announce eth1", "no carrier"],
    ),
    silent(across(an_interface("eth1", "10.1.0.5", running=False), ETH0)),
    silent(  # named: nic-name-missing says it
        named(
            ETH0,
            an_interface("eth1", "10.1.0.5", running=False),
            nccl="=eth1",
            gloo="eth1",
            software=software(nccl="2.21.5"),
        )
    ),
    skips(
        across(an_interface("eth1", "10.1.0.5", running=False), ETH0, software=software(nccl="")),
        saying=["version is not known", "from 2.28.3 on it takes eth0, before eth1"],
    ),
    speaks(
        "warning",
        across(
            an_interface(addresses=(Address(ip="fe80::5", prefix=64),)),
            software=software(nccl="2.28.9"),
        ),
        saying=["announce eth0 (fe80::5)", "link-local"],
    ),
    # Gloo
    speaks(
        "error",
        named(DOCKER, ETH0, gloo="docker0"),
        saying=["Gloo will announce docker0", "`export GLOO_SOCKET_IFNAME=eth0`"],
        not_saying=["replaces NCCL"],
    ),
    speaks(
        "error",
        across(ETH0, DOCKER, own_name=own_name("172.17.0.1")),
        saying=["Gloo will announce docker0", "own name node-a resolves to it"],
    ),
    not_applicable(across(ETH0, own_name=own_name("127.0.1.1")), saying=["hostname-misresolves"]),
    not_applicable(named(ETH0, gloo="lo"), saying=["see loopback-multi-node"]),
    not_applicable(named(ETH0, gloo="^docker0"), saying=["see nic-name-missing"]),
    skips(across(ETH0, own_name=Unread(why="no resolver")), saying=["no resolver"]),
    # nothing to complain about
    not_applicable(named(ETH0, nccl="lo"), saying=["see loopback-multi-node"]),
    not_applicable(named(ETH0, nccl="nope0"), saying=["see nic-name-missing"]),
    not_applicable(
        a_machine(accelerators=(), software=NO_NCCL),
        saying=["NCCL is not installed"],
    ),
    silent(across(DOCKER, ETH0)),
    silent(across(ETH0, an_interface("ib0", "10.8.0.5"))),
    silent(across(an_interface("eth1", "10.1.0.5"), ETH0)),
    silent(across(an_interface(kind="veth"))),  # eth0 of a container
    silent(named(ETH0, an_interface("net1", "10.5.0.5", kind="veth"), nccl="=net1", gloo="net1")),
    silent(across(DOCKER, routes=(), own_name=own_name("172.17.0.1"))),  # there is nothing else
    speaks(
        "error",  # no route tells the way, but there is an ordinary interface
        named(DOCKER, an_interface(kind="veth"), nccl="docker", routes=()),
        saying=["announce docker0", "`export NCCL_SOCKET_IFNAME==eth0`"],
    ),
    not_applicable(  # whatever the interfaces are, 127.0.0.1 is not ok
        a_machine(TWO_NODES, interfaces=(ETH0,), own_name=own_name()),
        saying=["falls back to loopback", "see hostname-misresolves"],
    ),
    silent(named(DOCKER, ETH0, nccl="=eth0", gloo="eth0")),
    silent(a_machine(interfaces=(a_loopback(), NETWORK_OF_A_COMPOSE_FILE, ETH0))),  # one machine
    silent(a_machine(interfaces=(a_loopback(),), own_name=own_name("127.0.1.1"))),
    skips(across(ETH0, interfaces=Unread(why="no netlink")), saying=["no netlink"]),
)


def test_the_choice_is_said_where_all_is_well() -> None:
    found = by_slug("wrong-nic").ask_check(across(DOCKER, ETH0, an_interface("eth1", "10.1.0.5")))
    nccl, gloo = (one.summary for one in found)
    assert nccl == (
        "NCCL will use eth0 (10.0.0.5): first interface that is not docker*, lo or virbr*; "
        "for data also eth1 (10.1.0.5)"
    )
    assert gloo == "Gloo will use eth0 (10.0.0.5): this machine's own name node-a resolves to it"


# --- between nodes -------------------------------------------------------------------------------

FOUR = some_nodes(4)


def also_at(facts: NodesFacts, interface: str, ips: list[str], outcome: Outcome) -> NodesFacts:
    """Every node has one interface more, in front of the others, and listens there too."""
    assert not isinstance(facts.reach, Unread)
    kind = "bridge" if interface == "docker0" else "physical"
    more = {name_of(n): an_interface(interface, ip, kind=kind) for n, ip in enumerate(ips)}
    there = [
        replace(one, target=replace(one.target, address=ip, interface=interface), outcome=outcome)
        for one in facts.reach
        for n, ip in enumerate(ips)
        if one.target.node == name_of(n)
    ]
    before = facts.reach
    facts = on_all(
        facts,
        lambda node: {
            "interfaces": (a_loopback(), more[node.name], data_interface(number_of(node)))
        },
    )
    return replace(facts, reach=(*before, *there))


def number_of(node: Node) -> int:
    return [name_of(n) for n in range(4)].index(node.name)


def all_named(facts: NodesFacts, value: str) -> NodesFacts:
    return on_all(facts, lambda _: {"settings": settings(NCCL_SOCKET_IFNAME=value)})


BRIDGES = also_at(FOUR, "docker0", ["172.17.0.1"] * 4, Outcome.OWN_ADDRESS)
MANAGEMENT = [f"192.168.{n}.9" for n in range(4)]
NO_WAY_OUT = also_at(FOUR, "eno1", MANAGEMENT, Outcome.NO_ROUTE)
TWO_NETWORKS = also_at(FOUR, "eno1", MANAGEMENT, Outcome.OK)
"""all get to each other's management addresses"""


def on_reach(facts: NodesFacts, target: str, ip: str, outcome: Outcome) -> NodesFacts:
    assert not isinstance(facts.reach, Unread)

    def changed(one: Reached) -> Reached:
        there = one.target.node == target and one.target.address == ip
        return replace(one, outcome=outcome) if there else one

    return replace(facts, reach=tuple(map(changed, facts.reach)))


def without_route(facts: NodesFacts, name: str) -> NodesFacts:
    """That node has eth0 alone, and no route to the other network."""
    assert not isinstance(facts.reach, Unread)
    kept = (o for o in facts.reach if (o.target.node, o.target.interface) != (name, "eno1"))
    reach = tuple(
        replace(one, outcome=Outcome.NO_ROUTE)
        if one.source == name and one.target.interface == "eno1"
        else one
        for one in kept
    )
    only = on_node(facts, name, interfaces=(a_loopback(), data_interface(3)))
    return replace(only, reach=reach)


test_check_nodes = between.table(
    "wrong-nic",
    between.speaks(
        "error",
        all_named(BRIDGES, "docker0"),
        saying=[
            "NCCL will announce 172.17.0.1 (docker0) on node-a, node-b, node-c and node-d",
            "each has this address for itself",
            "NCCL_SOCKET_IFNAME=docker0",
            "over eth0 every other node gets there",
            "`export NCCL_SOCKET_IFNAME==eth0` on node-a, node-b, node-c and node-d",
        ],
        hosts=[""],
    ),
    between.speaks(
        "warning",  # NCCL is not here, and yet told what to take
        on_all(
            all_named(BRIDGES, "docker0"),
            lambda node: {"accelerators": (), "software": replace(node.facts.software, nccl=())},
        ),
        saying=["NCCL will announce 172.17.0.1 (docker0)", "NCCL was not found there"],
    ),
    between.speaks(  # eno1 comes first, and has no route between racks
        "error",
        NO_WAY_OUT,
        saying=["NCCL will announce 192.168.0.9 of node-a", "(eno1): no node gets there"],
        not_saying=["Gloo"],
    ),
    between.speaks(  # one node of four takes another network
        "error",
        on_node(
            on_reach(all_named(TWO_NETWORKS, "=eth0"), "node-c", "192.168.2.9", Outcome.DROPPED),
            "node-c",
            settings=settings(NCCL_SOCKET_IFNAME="=eno1"),
        ),
        saying=[
            "NCCL will announce 192.168.2.9 of node-c (eno1): no node gets there",
            "`export NCCL_SOCKET_IFNAME==eth0` on node-c",
        ],
        hosts=["node-c"],
    ),
    between.speaks(  # node-d is not on the network that the others prefer
        "error",
        without_route(TWO_NETWORKS, "node-d"),
        saying=[
            "192.168.2.9 of node-c (eno1): node-d has no way there",
            "`export NCCL_SOCKET_IFNAME==eth0` on node-a, node-b and node-c",
        ],
        hosts=[""],
    ),
    between.silent(FOUR),
    between.silent(BRIDGES),  # there, and not chosen
    between.silent(TWO_NETWORKS),
    between.silent(  # its network works: peer-unreachable says which path is blocked
        on_reach(all_named(TWO_NETWORKS, "=eth0"), "node-c", address_of(2), Outcome.DROPPED)
    ),
    between.skips(on_node(FOUR, "node-b", interfaces=Unread(why="no netlink")), saying=["netlink"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)


def overruled(facts: NodesFacts) -> list[bool]:
    """Of each node that suspects its own address."""
    fault = by_slug("wrong-nic")
    doubt = fault.warning("NCCL will announce eth0", reason="a tunnel", fix="")
    facts = on_all(facts, lambda _: {"findings": (doubt,)})
    return [fault.is_refuted(facts, node) for node in facts.nodes]


def test_what_all_nodes_prove_overrules_the_doubt_of_one() -> None:
    assert overruled(FOUR) == [True] * 4
    assert overruled(replace(FOUR, reach=Unread(why="no listener"))) == [False] * 4
    blocked = on_reach(FOUR, "node-c", address_of(2), Outcome.DROPPED)
    assert overruled(blocked) == [True, True, False, True]


def test_what_is_said_for_all_nodes_is_not_said_for_each() -> None:
    assert overruled(NO_WAY_OUT) == [True] * 4
    assert overruled(all_named(BRIDGES, "docker0")) == [True] * 4
    assert overruled(all_named(BRIDGES, "lo")) == [False] * 4  # each node's own check says it
