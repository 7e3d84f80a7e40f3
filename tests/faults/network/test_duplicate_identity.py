from __future__ import annotations

from holdfast.analysis.machine import Unread, known
from holdfast.analysis.nodes import NodesFacts, Outcome
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_loopback, an_interface, settings
from tests.faults.made_nodes import on_all, on_node, path, replace, some_nodes
from tests.faults.table import explain_table, passes_over, recognises
from tests.faults.two_hosts import TWO_HOSTS

SAME = "NCCL WARN Duplicate GPU detected : rank {} and rank {} both on CUDA device 1b000"

test_explain = explain_table(
    "duplicate-identity",
    recognises(
        wreckage(SAME.format(0, 1), ranks=TWO_HOSTS),
        sure=0.8,
        what="hostname of node-a and node-b",
        victims=[0, 1],
        saying=["which run on node-a and node-b", "the same hostname and boot id"],
    ),
    recognises(
        wreckage(SAME.format(0, 8)), sure=0.35, what="the hostname", saying=["ranks 0 and 8"]
    ),
    recognises(
        wreckage(
            "node-a kernel: IPv6: eth0: IPv6 duplicate address 2001:db8::7 used by "
            "52:54:00:12:34:56 detected!"
        ),
        sure=0.6,
        what="2001:db8::7",
        saying=["use one address"],
    ),
    recognises(
        wreckage("RuntimeError: [enforce fail at device.cc:314] rv != 0. Cannot connect to self"),
        sure=0.4,
        what="an address",
        saying=["its own address and port"],
    ),
    passes_over(wreckage(SAME.format(1, 0))),  # a missing set_device: duplicate-gpu
)


# --- between nodes -------------------------------------------------------------------------------

THREE = some_nodes(3)


def called(facts: NodesFacts, name: str, **changes: object) -> NodesFacts:
    return on_node(facts, name, **{"host": "localhost", "boot_id": "b00t", **changes})


CLONES = called(called(THREE, "node-a"), "node-b")
SAME_MACHINE = on_node(CLONES, "node-b", interfaces=THREE.nodes[0].facts.interfaces)


def at_one_address(facts: NodesFacts, interface: str = "eth0") -> NodesFacts:
    """node-b listens at the address of node-a."""
    assert not isinstance(facts.reach, Unread)
    wrong = {"address": "10.0.0.1", "interface": interface}
    return replace(
        facts,
        reach=tuple(
            replace(one, target=replace(one.target, **wrong))
            if one.target.node == "node-b"
            else one
            for one in facts.reach
        ),
    )


def on_a_management_link(facts: NodesFacts) -> NodesFacts:
    """node-a and node-b have the same address on a second interface, which no library takes."""
    at = at_one_address(facts, "usb0")
    assert not isinstance(at.reach, Unread)
    same = "169.254.3.1"
    reach = tuple(
        replace(one, target=replace(one.target, address=same, interface="usb0"))
        if one.target.node in ("node-a", "node-b")
        else one
        for one in at.reach
    )
    return on_all(
        replace(at, reach=reach),
        lambda node: {
            "accelerators": (),
            "interfaces": (*known(node.facts.interfaces), an_interface("usb0", same)),
        },
    )


def at_docker0(facts: NodesFacts) -> NodesFacts:
    """All nodes listen at 172.17.0.1."""
    assert not isinstance(facts.reach, Unread)
    at = {"address": "172.17.0.1", "interface": "docker0"}
    reach = tuple(replace(one, target=replace(one.target, **at)) for one in facts.reach)
    bridge = an_interface("docker0", "172.17.0.1", kind="bridge")
    return on_all(replace(facts, reach=reach), lambda node: {"interfaces": (a_loopback(), bridge)})


test_check_nodes = between.table(
    "duplicate-identity",
    between.speaks(
        "error",
        CLONES,
        saying=[
            "node-a and node-b have the same hostname and boot id",
            "node-b: hostname localhost, boot id b00t",
            "shared memory and peer access",
            "export NCCL_HOSTID",
        ],
        not_saying=["node-c"],
    ),
    between.speaks(
        "warning",
        on_node(on_node(CLONES, "node-a", accelerators=()), "node-b", accelerators=()),
        saying=["no GPU was seen"],
    ),
    between.speaks(
        "error",
        on_node(
            on_node(THREE, "node-a", settings=settings(NCCL_HOSTID="x")),
            "node-b",
            settings=settings(NCCL_HOSTID="x"),
        ),
        saying=["have the same NCCL_HOSTID", "node-a: NCCL_HOSTID=x"],
    ),
    between.speaks(
        "warning",
        SAME_MACHINE,
        saying=["node-a and node-b are the same machine", "--ntasks-per-node=1"],
    ),
    between.speaks(
        "error",
        at_one_address(THREE),
        saying=["node-a and node-b have the same address 10.0.0.1", "node-b: eth0 has 10.0.0.1"],
    ),
    between.speaks(
        "warning",
        on_a_management_link(THREE),
        saying=["node-a and node-b have the same address", "neither NCCL, Gloo nor the meeting"],
    ),
    between.speaks(
        "error",
        path(THREE, "node-a", "node-b", Outcome.STRANGER, error="answered by node-c"),
        saying=[
            "another machine answers at 10.0.0.2, the address of node-b",
            "answered by node-c",
            "`sudo arping -D -c 3 -I eth0 10.0.0.2` on node-a",
        ],
    ),
    between.silent(THREE),
    between.silent(  # co-located on purpose
        on_node(
            on_node(CLONES, "node-a", settings=settings(NCCL_HOSTID="a")),
            "node-b",
            settings=settings(NCCL_HOSTID="b"),
        )
    ),
    between.silent(on_node(THREE, "node-b", boot_id="boot-0")),  # containers of one machine
    between.silent(on_node(THREE, "node-b", host="node-a")),  # another boot id: told apart
    between.silent(at_docker0(THREE)),  # docker0 has one address everywhere: wrong-nic says it
    between.skips(on_node(THREE, "node-b", boot_id=Unread(why="no /proc")), saying=["no /proc"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)
