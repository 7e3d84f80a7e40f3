from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises
from tests.faults.two_hosts import TWO_HOSTS

SAME = "NCCL WARN Duplicate GPU detected : rank {} and rank {} both on CUDA device 1b000"

test_explain = explain_table(
    "duplicate-identity",
    recognises(
        wreckage(SAME.format(0, 1), ranks=TWO_HOSTS),
        sure=0.8,
        what="hostname of node-a and node-b",
        victims=[0, 1],
        saying=["which run on node-a and node-b", "the same hostname and boot id"],
    ),
    recognises(
        wreckage(SAME.format(0, 8)), sure=0.35, what="the hostname", saying=["ranks 0 and 8"]
    ),
    recognises(
        wreckage(
            "node-a kernel: IPv6: eth0: IPv6 duplicate address 2001:db8::7 used by "
            "52:54:00:12:34:56 detected!"
        ),
        sure=0.6,
        what="2001:db8::7",
        saying=["use one address"],
    ),
    recognises(
        wreckage("RuntimeError: [enforce fail at device.cc:314] rv != 0. Cannot connect to self"),
        sure=0.4,
        what="an address",
        saying=["its own address and port"],
    ),
    passes_over(wreckage(SAME.format(1, 0))),  # a missing set_device: duplicate-gpu
)
