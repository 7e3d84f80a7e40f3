from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

test_explain = explain_table(
    "p2p-peer-limit",
    recognises(
        wreckage(
            "[rank9]: transport/p2p.cc:486 NCCL WARN failed to peer with device 9(=9): 60 peer "
            "mapping resources exhausted"
        ),
        sure=0.95,
        rank=9,
        saying=["eight without NVSwitch", "NCCL_P2P_LEVEL=PIX"],
    ),
    # harmless in itself: a library left the error behind, and a later call took it for its own
    passes_over(wreckage("[rank0]: RuntimeError: CUDA error: peer access is already enabled")),
    passes_over(wreckage("failed to peer with device 1(=1): 217 peer access is not supported")),
)
