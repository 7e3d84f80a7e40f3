from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
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
