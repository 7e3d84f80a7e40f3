from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

DIED = (
    "[rank1]: NCCL WARN socketProgressOpt: Call to recv from 192.0.2.7<43210> failed : Connection "
    "timed out"
)

test_explain = explain_table(
    "packet-loss",
    recognises(
        wreckage("node-a kernel: NETDEV WATCHDOG: ens3 (mlx5_core): transmit queue 4 timed out"),
        sure=0.6,
        what="ens3",
        saying=["ens3 could not send its packets", "ethtool -S ens3"],
    ),
    recognises(
        wreckage("100 packets transmitted, 87 received, 13% packet loss, time 101376ms"),
        sure=0.6,
        what="path between the hosts",
        saying=["13% of the packets"],
    ),
    recognises(wreckage(DIED), sure=0.3, what="path between the hosts", saying=["retransmissions"]),
    passes_over(wreckage("100 packets transmitted, 100 received, 0% packet loss, time 99ms")),
    passes_over(wreckage(DIED, "[rank0]: RuntimeError: Address already in use")),
)
