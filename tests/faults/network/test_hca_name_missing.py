from __future__ import annotations

from holdfast.analysis.source.source import LintingMachine
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

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
