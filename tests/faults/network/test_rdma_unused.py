from __future__ import annotations

from holdfast.analysis.source.source import LintingMachine
from tests.analysis.logs.patterns.made import wreckage
from tests.analysis.source.made_sources import python, shell
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

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
