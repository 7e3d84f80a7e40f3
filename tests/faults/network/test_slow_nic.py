from __future__ import annotations

from holdfast.analysis.machine import RdmaPort, Unread
from holdfast.analysis.machine.nccl_diagnostics import read_report
from holdfast.analysis.nodes import NodesFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between, made_rdma
from tests.faults.machines import a_loopback, a_machine, a_plan, an_interface, settings
from tests.faults.made_nodes import data_interface, name_of, on_all, on_node, replace, some_nodes
from tests.faults.made_rdma import a_roce_port, an_ib_port, of, rails
from tests.faults.made_smokes import smoked
from tests.faults.table import (
    check_table,
    explain_table,
    not_applicable,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)
from tests.faults.two_hosts import TWO_HOSTS

USED = "[rank0]: NCCL INFO Bootstrap: Using eno1:192.0.2.2<0>"
UP = "node-a kernel: igb 0000:06:00.0 eno1: igb: eno1 NIC Link is Up {} Full Duplex"

test_explain = explain_table(
    "slow-nic",
    recognises(
        wreckage(USED, UP.format("100 Mbps")),
        sure=0.5,
        what="eno1",
        saying=["NCCL used eno1, which runs at 100 Mb/s"],
    ),
    recognises(
        wreckage("NCCL INFO NET/IB : mlx5_0:1 speed change detected: 400000 -> 100000 Mbps"),
        sure=0.6,
        what="mlx5_0:1",
        saying=["fell from 400000 to 100000"],
    ),
    recognises(
        wreckage(
            "NCCL INFO Using network Socket", "# Avg bus bandwidth    : 0.0913", ranks=TWO_HOSTS
        ),
        sure=0.4,
        what="NCCL over sockets",
        saying=["0.0913 GB/s"],
    ),
    passes_over(wreckage(USED, UP.format("25 Gbps"))),
    passes_over(wreckage(UP.format("100 Mbps"))),  # nothing shows that NCCL uses it
    passes_over(wreckage("# Avg bus bandwidth    : 0.0913")),
)


# --- on one machine -----------------------------------------------------------------------------

TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
SLOW = an_interface("eno1", "10.9.0.5", speed=1000)
FAST = an_interface("ens1f0", "10.0.0.5", speed=100_000)
HALF = {"rate": 200.0, "rate_text": "200 Gb/sec (2X NDR)"}
ONE_LANE = {"rate": 100.0, "rate_text": "100 Gb/sec (1X NDR)"}
MANAGEMENT = a_roce_port("mlx5_8", "10.9.0.5", rate=25.0, rate_text="25 Gb/sec (1X EDR)")
BESIDE = of(
    *(an_ib_port(f"mlx5_{n}") for n in range(2)),
    MANAGEMENT,
    cards={"mlx5_8": made_rdma.a_card("mlx5_8", board="MT_0000000080")},
)

test_check = check_table(
    "slow-nic",
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(8, {5: HALF})),
        saying=["mlx5_5:1 runs at 200 Gb/sec (2X NDR) only", "others", "400 Gb/sec (4X NDR)"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(1, {0: ONE_LANE})),
        saying=["mlx5_0:1 runs at 100 Gb/sec (1X NDR) only", "lost lanes"],
    ),
    speaks(
        "note",
        a_machine(TWO_NODES, **BESIDE),
        saying=["mlx5_8:1 as well", "`export NCCL_IB_HCA==mlx5_0:1,mlx5_1:1`"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, interfaces=(a_loopback(), SLOW, FAST)),
        saying=[
            "NCCL will send data over eno1, which runs at 1000 Mb/s",
            "looks like the management network",
            "`export NCCL_SOCKET_IFNAME==ens1f0`",
        ],
    ),
    speaks(
        "note",
        a_machine(TWO_NODES, interfaces=(a_loopback(), SLOW)),
        saying=["runs at 1000 Mb/s", "`ethtool eno1`"],
    ),
    speaks(
        "warning",  # RDMA is there and is not used
        a_machine(
            TWO_NODES,
            **rails(8),
            interfaces=(a_loopback(), SLOW, FAST),
            settings=settings(NCCL_IB_DISABLE="1"),
        ),
        saying=["NCCL will send data over eno1"],
    ),
    silent(a_machine(TWO_NODES)),
    silent(a_machine(TWO_NODES, **rails(8), interfaces=(a_loopback(), SLOW, FAST))),
    silent(a_machine(TWO_NODES, **rails(8, dict.fromkeys(range(8), HALF)))),  # all of them alike
    silent(a_machine(TWO_NODES, **made_rdma.DGX)),
    silent(a_machine(TWO_NODES, **BESIDE, settings=settings(NCCL_IB_HCA="=mlx5_0,mlx5_1"))),
    silent(a_machine(TWO_NODES, interfaces=(a_loopback(), replace(SLOW, speed=None)))),
    not_applicable(a_machine(interfaces=(a_loopback(), SLOW)), saying=["one node"]),
    not_applicable(a_machine(TWO_NODES, **made_rdma.EFA), saying=["EFA: a plugin"]),
    not_applicable(
        a_machine(
            TWO_NODES, interfaces=(a_loopback(), SLOW), settings=settings(NCCL_NET="FasTrak")
        ),
        saying=["NCCL_NET=FasTrak: a plugin"],
    ),
    silent(  # chosen by the user
        a_machine(
            TWO_NODES,
            interfaces=(a_loopback(), SLOW, FAST),
            settings=settings(NCCL_SOCKET_IFNAME="=ens1f0"),
        )
    ),
    not_applicable(a_machine(interfaces=(a_loopback(), SLOW, FAST)), saying=["one node"]),
    skips(
        a_machine(TWO_NODES, interfaces=Unread(why="no netlink")),
        saying=["no netlink"],
    ),
    skips(
        a_machine(TWO_NODES, **{**rails(8), "rdma_cards": Unread(why="no answer within 2 s")}),
        saying=["no answer within 2 s"],
    ),
)

# --- between nodes -------------------------------------------------------------------------------


IB = RdmaPort(device="mlx5_0", number=1, state="ACTIVE", link_layer="InfiniBand")


def speeds(*values: int | None) -> NodesFacts:
    facts = some_nodes(len(values))
    for number, (node, speed) in enumerate(zip(facts.nodes, values, strict=True)):
        interfaces = (a_loopback(), replace(data_interface(number), speed=speed))
        facts = on_node(facts, node.name, interfaces=interfaces)
    return facts


A, E = name_of(0), name_of(4)
OUTLIER = (
    "node0:24563 NCCL DIAG [INFO] net bw: cross-nic rank 3 (node0): 265.1 Gbit/s, >30% off median "
    "391.5 Gbit/s in comm 0x7a3f9b2c41d05e88"
)

SIMILAR = on_all(some_nodes(4), lambda _: rails(8))

test_check_nodes = between.table(
    "slow-nic",
    between.speaks(
        "warning",
        on_node(SIMILAR, "node-c", **rails(8, {5: HALF})),
        saying=["RDMA ports differ in speed", "200 Gb/s, 400 Gb/s on node-c"],
        hosts=["node-c"],
    ),
    between.silent(SIMILAR),
    between.speaks(
        "warning",
        smoked(8, fleet={"slow_links": {frozenset((A, E))}}),
        saying=["the link between node-a and node-e is slow", "each of them is fast with others"],
        hosts=[""],
    ),
    between.speaks(
        "warning",
        smoked(8, diagnostics=read_report([OUTLIER])),
        saying=["cross-nic rank 3 (node0): 265.1 Gbit/s"],
    ),
    between.silent(smoked(8)),
    between.skips(smoked(2, fleet={"bad": {A}}), saying=["no pair of nodes was timed"]),
    between.not_applicable(some_nodes(3), saying=["add --smoke"]),
    between.speaks(
        "warning",
        speeds(25000, 25000, 1000),
        saying=[
            "links differ in speed: 25000 Mb/s on node-a and node-b, 1000 Mb/s on node-c",
            "node-c: eth0 runs at 1000 Mb/s",
            "`ethtool eth0` on node-c",
        ],
        hosts=["node-c"],
    ),
    between.speaks(
        "note",
        on_node(speeds(25000, 25000, 1000), "node-c", rdma_ports=(IB,)),
        saying=["with RDMA it carries no data"],
    ),
    between.speaks("warning", speeds(25000, 1000), saying=["1000 Mb/s on node-b"], hosts=[""]),
    between.silent(speeds(25000, 25000)),
    between.silent(speeds(25000, 25000, None)),  # a virtual one: not known
    between.skips(speeds(None, None), saying=["do not know the speed"]),
    between.skips(
        on_node(speeds(1000, 1000, 1000), "node-c", interfaces=Unread(why="late")), saying=["late"]
    ),
    between.not_applicable(some_nodes(1), saying=["one node"]),
)
