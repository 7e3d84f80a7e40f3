from __future__ import annotations

from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

test_recognise = recognise_table(
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
        saying=["went by TCP while 0 used IB"],
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
