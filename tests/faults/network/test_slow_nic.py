from __future__ import annotations

from holdfast.analysis.machine import RdmaPort, Unread
from holdfast.analysis.machine.nccl_diagnostics import read_report
from holdfast.analysis.nodes import NodesFacts
from tests.analysis.logs.patterns.made import wreckage
from tests.faults import between
from tests.faults.machines import a_loopback
from tests.faults.made_nodes import data_interface, name_of, on_node, replace, some_nodes
from tests.faults.made_smokes import smoked
from tests.faults.table import explain_table, passes_over, recognises
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

test_check_nodes = between.table(
    "slow-nic",
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
