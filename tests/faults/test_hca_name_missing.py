from __future__ import annotations

from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

NO_DEVICE = "NCCL INFO NET/IB : No device found."

test_recognise = recognise_table(
    "hca-name-missing",
    recognises(
        wreckage(NO_DEVICE, settings={"NCCL_IB_HCA": "ib0"}),
        sure=0.7,
        what="NCCL_IB_HCA=ib0",
        saying=["the name of a network interface", "ls /sys/class/infiniband"],
    ),
    recognises(
        wreckage(
            NO_DEVICE, "NCCL WARN Error: network IB not found.", settings={"NCCL_IB_HCA": "eth0"}
        ),
        sure=0.85,
        what="NCCL_IB_HCA=eth0",
        saying=["leaves NCCL no RDMA card"],
    ),
    recognises(
        wreckage(NO_DEVICE, settings={"NCCL_IB_HCA": "mlx5_9"}),
        sure=0.45,
        what="NCCL_IB_HCA=mlx5_9",
        saying=["went on over TCP"],
    ),
    passes_over(wreckage(NO_DEVICE)),
    passes_over(wreckage("NCCL INFO Using network IB", settings={"NCCL_IB_HCA": "mlx5_0"})),
)
