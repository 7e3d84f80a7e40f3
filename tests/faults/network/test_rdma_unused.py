from __future__ import annotations

import msgspec

from holdfast.analysis.machine import Unread
from holdfast.analysis.machine.rdma import NO_DRIVER, NO_LIBRARY
from holdfast.analysis.source.source import LintingMachine
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults import between, made_rdma
from tests.faults.machines import a_machine, a_plan, settings, software
from tests.faults.made_nodes import on_all, on_node, some_nodes
from tests.faults.made_rdma import a_roce_port, an_ib_port, of, rails
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

test_explain = explain_table(
    "rdma-unused",
    recognises(
        wreckage("NCCL WARN Error: network AWS Libfabric not found."),
        sure=0.85,
        what="NCCL_NET=AWS Libfabric",
        saying=["AWS Libfabric", "aws-ofi-nccl"],
    ),
    recognises(
        wreckage("NCCL WARN Failed to initialize any NET plugin", settings={"NCCL_NET": "IB"}),
        sure=0.85,
        what="NCCL_NET=IB",
        saying=["/dev/infiniband"],
    ),
    recognises(
        wreckage(
            "[rank0]: NCCL INFO Using network IB",
            "[rank1]: NCCL INFO Using network Socket",
        ),
        sure=0.75,
        what="1",
        saying=["used TCP while 0 used IB"],
    ),
    recognises(
        wreckage(
            "NCCL INFO Using network Socket",
            settings={"NCCL_IB_DISABLE": "1", "NCCL_IB_HCA": "mlx5_0"},
        ),
        sure=0.3,
        what="NCCL_IB_DISABLE=1",
        saying=["unset NCCL_IB_DISABLE"],
    ),
    # machines without RDMA are no fault
    passes_over(wreckage("NCCL INFO NET/IB : No device found.", "NCCL INFO Using network Socket")),
    passes_over(
        wreckage("NCCL INFO Using network Socket", settings={"NCCL_IB_DISABLE": "1"}),
    ),
)

test_lint = lint_table(
    "rdma-unused",
    leaves(  # a plugin carries the data, over EFA
        shell("export FI_PROVIDER=efa NCCL_IB_DISABLE=1\ntorchrun --nnodes=8 train.py")
    ),
    flags(
        "warning",
        shell("export FI_PROVIDER=efa NCCL_NET=Socket\ntorchrun --nnodes=8 train.py"),
        lines=[1],
        saying=["NCCL_NET=Socket makes NCCL use TCP"],
    ),
    flags(
        "note",
        shell("export NCCL_IB_DISABLE=1\ntorchrun --standalone train.py"),
        lines=[1],
        saying=["Within one machine it changes nothing", "remove NCCL_IB_DISABLE"],
    ),
    flags(
        "warning",
        shell("export NCCL_IB_DISABLE=1\ntorchrun --nnodes=8 train.py"),
        lines=[1],
        saying=["makes NCCL use TCP", "uses sockets by itself"],
    ),
    flags(
        "warning",
        shell("export NCCL_NET=Socket", here=LintingMachine(rdma_devices=("mlx5_0",))),
        lines=[1],
        saying=["prevents NCCL from using the RDMA cards of this machine (mlx5_0)"],
    ),
    flags(
        "note",
        python('import os\nos.environ["NCCL_NET"] = "socket"'),
        lines=[2],
        saying=["NCCL_NET=socket"],
    ),
    leaves(
        shell("export NCCL_IB_DISABLE=0 NCCL_NET=IB", here=LintingMachine(rdma_devices=("mlx5_0",)))
    ),
    leaves(shell("export NCCL_IB_DISABLE=$NO_IB")),
    leaves(shell("export NCCL_NET='AWS Libfabric'")),
    leaves(shell("unset NCCL_IB_DISABLE")),
)


TWO_NODES = a_plan(min_nodes=2, max_nodes=2)
WITHOUT_PLUGIN = msgspec.structs.replace(software(nccl="2.29.7"), net_plugins=())
OFF = settings(NCCL_IB_DISABLE="1")

test_check = check_table(
    "rdma-unused",
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(2), settings=OFF),
        saying=["NCCL_IB_DISABLE=1 prevents", "mlx5_0:1 and mlx5_1:1", "`unset NCCL_IB_DISABLE`"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **rails(1), settings=settings(NCCL_NET="Socket")),
        saying=["NCCL_NET=Socket prevents", "mlx5_0:1 ACTIVE, 400 Gb/sec"],
    ),
    speaks(
        "note",  # many Ethernet networks are not fit for RoCE
        a_machine(TWO_NODES, **of(a_roce_port()), settings=OFF),
        saying=["right where the network is not fit for RoCE"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **of(an_ib_port(), verbs_error=NO_LIBRARY)),
        saying=["will not use mlx5_0: libibverbs is not installed", "libibverbs1"],
    ),
    speaks(
        "warning",
        a_machine(TWO_NODES, **of(an_ib_port(), verbs_error=NO_DRIVER)),
        saying=["has no driver for the cards", "mlx5_core", "ibverbs-providers"],
    ),
    speaks(
        "note",
        a_machine(TWO_NODES, **of(a_roce_port(), verbs_error=NO_LIBRARY)),
        saying=["libibverbs is not installed"],
    ),
    silent(a_machine(TWO_NODES, **rails(8))),
    silent(a_machine(TWO_NODES, **rails(8), settings=settings(NCCL_IB_DISABLE="0"))),
    not_applicable(  # a card of a cloud's virtual machine that does RoCE in name only
        a_machine(TWO_NODES, **of(a_roce_port("mlx5_an0", "")), settings=OFF),
        saying=["no RDMA port here is worth using"],
    ),
    not_applicable(a_machine(**rails(8), settings=OFF), saying=["one node"]),
    not_applicable(a_machine(TWO_NODES), saying=["no RDMA card"]),
    silent(a_machine(TWO_NODES, **made_rdma.EFA)),
    speaks(
        "warning",
        a_machine(TWO_NODES, **{**made_rdma.EFA, "software": WITHOUT_PLUGIN}),
        saying=["no network plugin", "rdmap16s27 and rdmap32s27 (EFA)", "aws-ofi-nccl"],
    ),
    skips(
        a_machine(TWO_NODES, **{**made_rdma.EFA, "software": software(nccl="2.29.7")}),
        saying=["not looked for"],
    ),
    not_applicable(
        a_machine(TWO_NODES, **rails(8), settings=settings(NCCL_NET="AWS Libfabric")),
        saying=["a plugin transfers the data"],
    ),
    not_applicable(a_machine(TWO_NODES, **rails(8, open_error="ENOENT")), saying=["ib-misconfig"]),
    not_applicable(
        a_machine(TWO_NODES, **rails(2, {0: made_rdma.DOWN, 1: made_rdma.DOWN})),
        saying=["no active port"],
    ),
    skips(
        a_machine(TWO_NODES, **{**rails(8), "rdma_cards": Unread(why="no answer within 2 s")}),
        saying=["no answer within 2 s"],
    ),
)

SIMILAR = on_all(some_nodes(4), lambda _: rails(8))

test_check_nodes = between.table(
    "rdma-unused",
    between.speaks(
        "error",
        on_node(SIMILAR, "node-c", settings=OFF),
        saying=["not on node-c", "node-c: NCCL_IB_DISABLE=1", "same network"],
        hosts=["node-c"],
    ),
    between.speaks(
        "error",
        on_node(SIMILAR, "node-b", **rails(8, open_error="ENOENT", active_mtu={})),
        saying=["node-b: the cards cannot be opened (ENOENT)"],
        hosts=["node-b"],
    ),
    between.speaks(
        "error",
        on_node(SIMILAR, "node-b", rdma_ports=(), rdma_cards=(), rdma_devices=()),
        saying=["node-b: no RDMA card"],
    ),
    between.silent(SIMILAR),
    between.not_applicable(on_all(SIMILAR, lambda _: {"settings": OFF}), saying=["on no node"]),
    between.not_applicable(on_all(some_nodes(3), lambda _: made_rdma.EFA), saying=["on no node"]),
    between.not_applicable(some_nodes(1), saying=["one node"]),
    between.skips(
        on_node(SIMILAR, "node-c", rdma_ports=Unread(why="no answer within 2 s")),
        saying=["no answer within 2 s"],
    ),
)
