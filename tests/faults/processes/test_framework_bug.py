from __future__ import annotations

from tests.analysis.logs.patterns.jobs import HEALTHY, STUCK, a_job, a_raise
from tests.faults.table import explain_table, passes_over, recognises

INTERNAL = (
    "[rank1]: RuntimeError: grad.device() == bucket.device() INTERNAL ASSERT FAILED at "
    '"../torch/csrc/distributed/c10d/reducer.cpp":352, please report a bug to PyTorch.'
)
LIBRARY = "/venv/lib/python3.12/site-packages/deepspeed/runtime/engine.py"

test_explain = explain_table(
    "framework-bug",
    recognises(
        a_job(INTERNAL, versions={"torch": "2.11.0"}),
        sure=0.65,
        rank=1,
        what="reducer.cpp:352",
        saying=["torch 2.11.0", "reducer.cpp:352"],
    ),
    recognises(
        a_job(
            "Program terminated with signal SIGSEGV, Segmentation fault.",
            "#0  0x00007f92fef2548f in at::cuda::getDevice() ()",
        ),
        sure=0.7,
        what="at::cuda::getDevice",
        saying=["crashed inside"],
    ),
    recognises(
        a_job("[rank1]: ncclInternalError: Internal check failed."),
        sure=0.25,
        rank=1,
        saying=["NCCL_DEBUG=INFO"],
    ),
    recognises(
        a_job(raised=[a_raise(1, "AttributeError", "'NoneType' has no x", file=LIBRARY)]),
        sure=0.4,
        rank=1,
        what="deepspeed",
        saying=["inside deepspeed"],
    ),
    passes_over(a_job(raised=[a_raise(1, "ValueError", "bad", file=LIBRARY)])),
    passes_over(a_job(raised=[a_raise(1, "AttributeError", "mine")])),
    passes_over(HEALTHY),
    passes_over(STUCK),
)
