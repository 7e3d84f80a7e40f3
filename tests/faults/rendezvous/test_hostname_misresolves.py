from __future__ import annotations

from typing import Any

from holdfast.analysis.machine import Address, MachineFacts, Resolution, Route, Unread
from holdfast.analysis.nodes import NodesFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_loopback, a_machine, a_plan, an_interface
from tests.faults.made_nodes import data_interface, on_node, resolving, some_nodes
from tests.faults.table import (
    check_table,
    explain_table,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)
from tests.faults.two_hosts import TWO_HOSTS

TWO = a_plan(min_nodes=2, max_nodes=2)
C10D = a_plan(min_nodes=2, max_nodes=2, rdzv_backend="c10d", rdzv_endpoint="10.0.0.5:29400")
DUAL = (
    a_loopback(),
    an_interface(
        addresses=(
            Address(ip="10.0.0.5", prefix=24),
            Address(ip="2001:db8::5", prefix=64),
            Address(ip="fe80::5%eth0", prefix=64),
        )
    ),
)
LINK_ONLY = (
    Route(interface="eth0", destination="10.0.0.0/24", gateway="", metric=100),
    Route(interface="eth0", destination="fe80::/64", gateway="", metric=256),
    Route(interface="eth0", destination="2001:db8::5/128", gateway="", metric=0),
    Route(interface="eth0", destination="ff00::/8", gateway="", metric=256),
)
ON_LINK = (*LINK_ONLY, Route(interface="eth0", destination="2001:db8::/64", gateway="", metric=1))


def named(*found: str, plan: Any = TWO, **changes: Any) -> MachineFacts:
    error = "" if found else "Name or service not known"
    name = Resolution(name="node-a", addresses=found, error=error, seconds=0.001)
    return a_machine(plan, own_name=name, **changes)


def with_gloo(backend: str) -> Any:
    return a_plan(max_nodes=2, rdzv_backend=backend, environment={"GLOO_SOCKET_IFNAME": "eth0"})


test_check = check_table(
    "hostname-misresolves",
    speaks(
        "error",
        named("127.0.1.1"),
        saying=[
            "own name node-a resolves to the loopback address 127.0.1.1",
            "in /etc/hosts with `10.0.0.5 node-a`",
            "export GLOO_SOCKET_IFNAME=eth0",
            "--local-addr 10.0.0.5",
        ],
    ),
    speaks("error", named("::1", "10.0.0.5"), saying=["::1"]),
    speaks("note", named("127.0.1.1", plan=a_plan()), saying=["harmless on one node"]),
    speaks(
        "note", named("127.0.1.1", plan=with_gloo("")), saying=["makes Gloo use another address"]
    ),
    speaks(
        "warning",
        named("127.0.1.1", plan=with_gloo("c10d")),
        saying=["which node serves the store"],
    ),
    speaks(
        "warning",
        named("192.168.9.9"),
        saying=["node-a resolves to an address that no interface here has", "192.168.9.9"],
    ),
    speaks("note", named("192.168.9.9", plan=a_plan()), saying=["no interface here"]),
    speaks(
        "warning",
        named("2001:db8::5", "10.0.0.5", interfaces=DUAL, routes=LINK_ONLY),
        saying=["IPv6 address first", "has no route here"],
    ),
    speaks(
        "warning",
        named("fe80::5%eth0", "10.0.0.5", interfaces=DUAL, routes=ON_LINK),
        saying=["IPv6 address first"],
    ),
    speaks(
        "error",
        a_machine(C10D, own_fqdn="localhost.localdomain"),
        saying=["full name is localhost.localdomain", "--local-addr 10.0.0.5"],
    ),
    silent(a_machine(TWO)),
    silent(a_machine(C10D)),
    # Gloo takes the first usable address, so a loopback behind it does no harm
    silent(named("10.0.0.5", "127.0.1.1")),
    silent(named("2001:db8::5", interfaces=DUAL, routes=ON_LINK)),
    # without the routes none is blamed
    silent(named("2001:db8::5", interfaces=DUAL, routes=Unread(why="no /proc/net"))),
    # only c10d publishes the full name
    silent(a_machine(TWO, own_fqdn="localhost")),
    skips(named(), saying=["see dns-failure"]),
    skips(a_machine(TWO, own_name=Unread(why="no answer within 0.8 s")), saying=["0.8 s"]),
    skips(a_machine(C10D, own_fqdn=Unread(why="no answer")), saying=["no answer"]),
)


# --- explain --------------------------------------------------------------------------

MESH = (
    "RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/transport/tcp/"
    "pair.cc:144] timed out connecting: SO_ERROR: Connection refused, remote=[{}]:40001"
)
UNRESOLVED = (
    "[W ProcessGroupGloo.cpp:724] Warning: Unable to resolve hostname to a (local) address. Using "
    "the loopback address as fallback."
)

test_explain = explain_table(
    "hostname-misresolves",
    recognises(
        wreckage(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:83] "
            "bind: Cannot assign requested address"
        ),
        sure=0.85,
        what="the name of this host",
        saying=["an address that this machine does not have"],
    ),
    recognises(
        wreckage(f"[rank1]: {MESH.format('127.0.1.1')}"),
        sure=0.9,
        what="127.0.1.1",
        victims=[1],
        saying=["the host's own name resolves to loopback", "getent ahosts $(hostname)"],
    ),
    recognises(
        wreckage(f"[rank1]: {MESH.format('127.0.0.1')}", ranks=TWO_HOSTS),
        sure=0.9,
        what="127.0.0.1",
        saying=["GLOO_SOCKET_IFNAME"],
    ),
    recognises(
        wreckage(f"[rank1]: {MESH.format('127.0.0.1')}"),
        sure=0.6,  # on one machine it may be a rank that died
        what="127.0.0.1",
        saying=["127.0.0.1"],
    ),
    recognises(
        wreckage(
            f"[rank0]: {UNRESOLVED}",
            "[rank0]: RuntimeError: Gloo connectFullMesh failed with [../third_party/gloo/gloo/"
            "transport/tcp/pair.cc:144] no error",
        ),
        sure=0.75,
        what="127.0.0.1",
        saying=["loopback"],
    ),
    recognises(
        wreckage(
            "The client socket has timed out after 60s while trying to connect to (1234, 29500)."
        ),
        sure=0.9,
        what="1234",
        saying=["a host name made of digits"],
    ),
    recognises(
        wreckage("NCCL WARN Net : Connect to 0.0.4.210<43210> failed : Connection refused"),
        sure=0.9,
        what="0.0.4.210",
        saying=["0.0.0.0/8"],
    ),
    recognises(
        wreckage(
            "[W socket.cpp:697] [c10d] The IPv6 network addresses of (1.0.0.0.0.0.ip6.arpa, 29500) "
            "cannot be retrieved (gai error: 8 - nodename nor servname provided, or not known)."
        ),
        sure=0.9,
        what="ip6.arpa",
        saying=["a reverse DNS entry"],
    ),
    recognises(
        wreckage(
            "RuntimeError: [enforce fail at ../third_party/gloo/gloo/transport/tcp/device.cc:130] "
            "rp != nullptr. Unable to find address for node-a; bind(2) for 192.0.2.9 failed with: "
            "Cannot assign requested address"
        ),
        sure=0.85,
        what="node-a",
        saying=["an address that this machine does not have"],
    ),
    passes_over(wreckage(f"[rank1]: {MESH.format('192.0.2.7')}")),
    passes_over(wreckage(f"[rank0]: {UNRESOLVED}")),  # right on one machine
)


# --- between nodes -------------------------------------------------------------------------------

FOUR = some_nodes(4)


def everywhere(name: str, *ips: str) -> NodesFacts:
    facts = FOUR
    for node in FOUR.nodes:
        if node.name != name:
            facts = resolving(facts, node.name, name, *ips)
    return facts


SECOND = an_interface("eth1", "192.168.7.2")

test_check_nodes = between.table(
    "hostname-misresolves",
    between.speaks(  # Debian's line for itself, copied to another machine
        "error",
        resolving(some_nodes(4, master_addr="node-b"), "node-c", "node-b", "127.0.1.1"),
        saying=[
            "node-c resolves node-b to 127.0.1.1, which is node-c itself",
            "node-c: node-b is 127.0.1.1",
            "`getent ahosts node-b` must answer 10.0.0.2",
        ],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",  # another node may serve the store
        resolving(FOUR, "node-c", "node-b", "10.0.0.4"),
        saying=["node-c resolves node-b to 10.0.0.4, which is node-d"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        resolving(FOUR, "node-c", "node-b", "10.9.9.9"),
        saying=["node-c resolves node-b to 10.9.9.9, an address that no node has"],
        hosts=["node-c"],
    ),
    between.speaks(
        "warning",
        resolving(resolving(FOUR, "node-c", "node-b", "10.9.9.9"), "node-c", "node-a", "10.9.9.8"),
        saying=["node-c resolves node-a to 10.9.9.8", "and 1 more names wrongly"],
        hosts=["node-c"],
    ),
    between.speaks(
        "error",
        everywhere("node-b", "10.0.0.4"),
        saying=["all other nodes resolve node-b to 10.0.0.4, which is node-d"],
        hosts=["node-b"],
    ),
    between.speaks(
        "warning",
        everywhere("node-b", "10.9.9.9"),
        saying=["all other nodes resolve node-b to 10.9.9.9", "NAT"],
        hosts=["node-b"],
    ),
    between.silent(FOUR),
    between.silent(  # split horizon: both addresses are node-b's
        resolving(
            on_node(FOUR, "node-b", interfaces=(a_loopback(), data_interface(1), SECOND)),
            "node-c",
            "node-b",
            "192.168.7.2",
        )
    ),
    between.silent(resolving(FOUR, "node-c", "node-b", "fe80::9", "10.0.0.2")),
    between.silent(resolving(FOUR, "node-b", "node-b", "127.0.1.1")),  # its own check says it
    between.silent(resolving(FOUR, "node-c", "node-b")),  # dns-failure
    between.skips(on_node(FOUR, "node-c", names=Unread(why="late")), saying=["late"]),
    between.skips(  # an address that no node has may be one of its own
        on_node(
            resolving(FOUR, "node-c", "node-b", "10.9.9.9"),
            "node-b",
            interfaces=Unread(why="no netlink"),
        ),
        saying=["no netlink"],
    ),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)
