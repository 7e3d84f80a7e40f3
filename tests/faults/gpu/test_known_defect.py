from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

UDS = (
    "[rank2]: misc/ipcsocket.cc:57 NCCL WARN UDS: Binding to socket /tmp/nccl-socket-2-e6a1 "
    "failed : Address already in use (98)"
)
ABORT = (
    "[rank0]: NCCL WARN socketStartConnect: Connect to 192.0.2.7<45763> failed : Software caused "
    "connection abort"
)

test_explain = explain_table(
    "known-defect",
    recognises(
        wreckage(UDS, versions={"nccl": "2.20.3"}),
        sure=0.93,
        rank=2,
        what="NCCL 2.20.3",
        saying=["NVIDIA/nccl#1185", "upgrade NCCL to 2.20.5"],
    ),
    recognises(wreckage(UDS), sure=0.7, rank=2, what="NCCL", saying=["ncclCommSplit"]),
    recognises(
        wreckage(
            "NCCL INFO ncclMaxSharedMem 82240 exceeds device/fn maxSharedMem 79856",
            versions={"nccl": "2.25.1+cuda12.8"},
        ),
        sure=0.93,
        what="NCCL 2.25.1",
        saying=["Blackwell", "2.26.2"],
    ),
    recognises(
        wreckage(
            "transport/shm.cc:590 NCCL WARN Cuda failure 217 'peer access is not supported b'"
        ),
        sure=0.7,
        what="NCCL",
        saying=["NCCL_CUMEM_HOST_ENABLE=0", "no release with a fix"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-x (size 0), "
            "error: No such file or directory (2)",
            versions={"nccl": "2.27.5"},
        ),
        sure=0.85,
        what="NCCL 2.27.5",
        saying=["disagree"],
    ),
    recognises(
        wreckage(
            "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl- (size "
            "192814336), error: No such file or directory (2)",
        ),
        sure=0.7,
        what="NCCL",
        saying=["disagree"],
    ),
    recognises(
        wreckage(ABORT, versions={"nccl": "2.21.5"}), sure=0.6, rank=0, saying=["2.24.3", "late"]
    ),
    passes_over(wreckage(UDS, versions={"nccl": "2.28.9"})),
    passes_over(wreckage(ABORT, versions={"nccl": "2.27.3"})),
    passes_over(wreckage("NCCL version 2.20.3+cuda12.4")),
)
