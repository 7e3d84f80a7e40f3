from __future__ import annotations

from holdfast.explain.gather import gather_bytes
from tests.analysis.logs import nccl_tests_output as made
from tests.analysis.logs.nccl_tests_output import GIB
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

HEALTHY = [made.row(1 << n, 300.0) for n in range(20, 31)]
WRONG = [made.row(1 << 20, 300.0), made.row(GIB, 300.0, 12)]
OUT_OF_MEMORY = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
    "total capacity of 79.11 GiB of which 1.00 GiB is free."
)

test_explain = explain_table(
    "nccl-tests-failed",
    recognises(
        wreckage(*made.text(WRONG, wrong=24)),
        sure=0.9,
        what="GPUs of node-a",
        saying=["wrong values, from 1 GiB on", "8 ranks", "NCCL_P2P_DISABLE"],
    ),
    recognises(
        gather_bytes({"out.json": made.document([(GIB, 1.0, 3.0)], wrong=6)}),
        sure=0.9,
        saying=["wrong values, from 1 GiB on"],
    ),
    recognises(
        wreckage(
            *made.text(HEALTHY, average=None, nodes=("a", "b"), ranks=16),
            "b: Test timeout (120s) common.cu:526",
            " .. b pid 4001: Test failure common.cu:680",
        ),
        sure=0.5,
        what="GPUs of a and b",
        saying=["hung after 1 GiB", "within 120 s"],
    ),
    recognises(
        wreckage(*made.text([], average=None)), sure=0.3, saying=["before its first result"]
    ),
    passes_over(wreckage(*made.text(HEALTHY))),
    passes_over(gather_bytes({"out.json": made.document([(GIB, 300.0, 0.0)])})),
    # something else in the same log says why
    passes_over(wreckage(*made.text([], average=None), OUT_OF_MEMORY)),
)
