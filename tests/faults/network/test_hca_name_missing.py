from __future__ import annotations

import msgspec

from holdfast.analysis.machine import MachineFacts, RdmaPort, Unread
from holdfast.analysis.source.source import LintingMachine
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults import made_rdma
from tests.faults.machines import a_machine, a_plan, a_port_of, settings, software
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

NO_DEVICE = "NCCL INFO NET/IB : No device found."

test_explain = explain_table(
    "hca-name-missing",
    recognises(
        wreckage(NO_DEVICE, settings={"NCCL_IB_HCA": "ib0"}),
        sure=0.7,
        what="NCCL_IB_HCA=ib0",
        saying=["it names a network interface, not a card", "ls /sys/class/infiniband"],
    ),
    recognises(
        wreckage(
            NO_DEVICE, "NCCL WARN Error: network IB not found.", settings={"NCCL_IB_HCA": "eth0"}
        ),
        sure=0.85,
        what="NCCL_IB_HCA=eth0",
        saying=["matched no RDMA card"],
    ),
    recognises(
        wreckage(NO_DEVICE, settings={"NCCL_IB_HCA": "mlx5_9"}),
        sure=0.45,
        what="NCCL_IB_HCA=mlx5_9",
        saying=["used TCP instead"],
    ),
    passes_over(wreckage(NO_DEVICE)),
    passes_over(wreckage("NCCL INFO Using network IB", settings={"NCCL_IB_HCA": "mlx5_0"})),
)

CARDS = LintingMachine(rdma_devices=("mlx5_0", "mlx5_1"))

test_lint = lint_table(
    "hca-name-missing",
    flags(
        "note",
        shell("export NCCL_IB_HCA=mlx5"),
        lines=[1],
        saying=["selects nothing", "every mlx5 card", "`NCCL_IB_HCA==mlx5_0:1,mlx5_1:1`"],
    ),
    flags(
        "note",
        python('import os\nos.environ["NCCL_IB_HCA"] = "mlx5_"'),
        lines=[2],
        saying=["selects"],
    ),
    flags("warning", shell("export NCCL_IB_HCA==mlx5"), lines=[1], saying=["exactly mlx5"]),
    flags(
        "warning",
        shell("export NCCL_IB_HCA==mlx5_0:1,=mlx5_1:1"),
        lines=[1],
        saying=["'=mlx5_1' cannot match any card", "'=mlx5_0:1,mlx5_1:1'"],
    ),
    flags(
        "warning",
        shell("export NCCL_IB_HCA=ib0,ib1"),
        lines=[1],
        saying=["ib0 is the name of a network interface", "NCCL_SOCKET_IFNAME"],
    ),
    flags(
        "note",
        shell("export NCCL_IB_HCA=mlx5_4", here=CARDS),
        lines=[1],
        saying=["no card of this machine", "mlx5_0, mlx5_1"],
    ),
    leaves(shell("export NCCL_IB_HCA==mlx5_0:1,mlx5_1:1", here=CARDS)),
    leaves(shell("export NCCL_IB_HCA=mlx5_0,mlx5_3,mlx5_bond_0,bnxt_re0,rdmap0s6")),
    leaves(shell("export NCCL_IB_HCA=^mlx5_2", here=CARDS)),
    leaves(shell("export NCCL_IB_HCA=$HCA")),
    leaves(shell("export NCCL_IB_HCA==rxe0")),
    leaves(shell("export NCCL_IB_HCA=mlx5_4", here=LintingMachine(rdma_devices=()))),
)

TWO_NODES = a_plan(max_nodes=2)
PORTS = (a_port_of("mlx5_0"), a_port_of("mlx5_1"), a_port_of("mlx5_2", state="DOWN"))


def with_hca(
    value: str, ports: tuple[RdmaPort, ...] = PORTS, *, nodes: int = 2, **more: str
) -> MachineFacts:
    plan = a_plan(max_nodes=nodes)
    return a_machine(plan, rdma_ports=ports, settings=settings(NCCL_IB_HCA=value, **more))


NO_NCCL = msgspec.structs.replace(software(nccl=""), nccl=())

test_check = check_table(
    "hca-name-missing",
    speaks(
        "warning",
        with_hca("=mlx5_4"),
        saying=["matches no RDMA port", "uses TCP", "`export NCCL_IB_HCA==mlx5_0:1,mlx5_1:1`"],
    ),
    speaks("error", with_hca("ib0", NCCL_NET="IB"), saying=["NCCL_NET=IB", "every rank"]),
    speaks("note", with_hca("ib0", nodes=1), saying=["matches no RDMA port"]),
    speaks("warning", with_hca("mlx5_2"), saying=["not active (mlx5_2:1)", "mlx5_2:1 DOWN"]),
    speaks(
        "warning", with_hca("mlx5_0,mlx5_9"), saying=["mlx5_9 not on this machine", "mlx5_0:1 only"]
    ),
    speaks("warning", with_hca("=mlx5_0,mlx5_2"), saying=["mlx5_2:1 not active"]),
    speaks("warning", with_hca("=mlx5_0:1,=mlx5_1:1"), saying=["=mlx5_1:1 not on this machine"]),
    speaks("note", with_hca("=mlx5_0,mlx5_9", nodes=1), saying=["mlx5_9"]),
    speaks(
        "note",
        with_hca("mlx5_1", (*PORTS, a_port_of("mlx5_10"))),
        saying=["mlx5_1 is a prefix and selects mlx5_10 as well"],
    ),
    speaks(
        "note",
        with_hca("mlx5", (a_port_of("mlx5_0"), a_port_of("mlx5_3", link_layer="Ethernet"))),
        saying=["ports of Ethernet and InfiniBand"],
    ),
    speaks("note", with_hca("mlx5_9", ()), saying=["no RDMA device", "unset NCCL_IB_HCA"]),
    not_applicable(with_hca("mlx5_9", (), nodes=1), saying=["NCCL ignores NCCL_IB_HCA"]),
    not_applicable(  # nothing here would read it
        msgspec.structs.replace(with_hca("mlx5_9", ()), software=NO_NCCL),
        saying=["NCCL ignores NCCL_IB_HCA"],
    ),
    not_applicable(with_hca("mlx5_9", NCCL_IB_DISABLE="1"), saying=["NCCL_IB_DISABLE=1"]),
    not_applicable(a_machine(TWO_NODES, rdma_ports=PORTS), saying=["every active port"]),
    not_applicable(
        a_machine(TWO_NODES, **made_rdma.EFA, settings=settings(NCCL_IB_HCA="mlx5_0")),
        saying=["its plugin for NCCL does not read NCCL_IB_HCA"],
    ),
    silent(with_hca("=mlx5_0:1,mlx5_1:1")),
    silent(with_hca("^mlx5_9")),
    skips(
        a_machine(
            TWO_NODES, settings=settings(NCCL_IB_HCA="mlx5_0"), rdma_ports=Unread(why="no /sys")
        ),
        saying=["no /sys"],
    ),
)
