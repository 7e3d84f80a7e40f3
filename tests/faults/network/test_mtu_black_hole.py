from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

DIED = "[rank{}]: NCCL WARN socketProgressOpt: Call to recv from 192.0.2.7<43210> failed : {}"
COMPLETE = (
    "[rank0]: NCCL INFO comm 0x1b67ca30 rank 0 nranks 4 cudaDev 0 busId 3d000 - Init COMPLETE"
)

test_explain = explain_table(
    "mtu-black-hole",
    recognises(
        wreckage(COMPLETE, DIED.format(1, "Connection timed out")),
        sure=0.7,
        what="path between the hosts (192.0.2.7)",
        victims=[1],
        saying=["went silent on rank 1 towards 192.0.2.7", "ping -M do -s 8972 -c 3 192.0.2.7"],
    ),
    recognises(
        wreckage(
            DIED.format(0, "Connection timed out"),
            DIED.format(1, "Connection timed out"),
            world_size=2,
        ),
        sure=0.7,  # both ends live, and tell the same
        what="path between the hosts",
        victims=[0, 1],
        saying=["ranks 0, 1"],
    ),
    recognises(
        wreckage(DIED.format(1, "Connection timed out")),
        sure=0.5,
        what="path between the hosts",
        saying=["large ones did not"],
    ),
    recognises(
        wreckage(COMPLETE, DIED.format(1, "No route to host")),
        sure=0.3,
        what="path between the hosts",
        saying=["192.0.2.7"],
    ),
    recognises(
        wreckage(
            COMPLETE,
            DIED.format(1, "Connection timed out"),
            "[rank2]: RuntimeError: Address already in use",
        ),
        sure=0.3,
        what="path between the hosts",
        saying=["192.0.2.7"],
    ),
    recognises(
        wreckage("From 192.0.2.1 icmp_seq=1 Frag needed and DF set (mtu = 1500)"),
        sure=0.45,
        what="path between the hosts",
        saying=["larger than the MTU of a hop"],
    ),
    passes_over(wreckage(DIED.format(1, "Connection reset by peer"))),
    passes_over(
        wreckage("NCCL WARN Net : Connect to 192.0.2.7<43210> failed : Connection timed out")
    ),
)
