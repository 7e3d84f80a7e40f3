from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

REBUILD = "    self._semlock = _multiprocessing.SemLock._rebuild(*state)"
GONE = "[rank1]: FileNotFoundError: [Errno 2] No such file or directory"

test_explain = explain_table(
    "ipc-removed",
    recognises(
        wreckage(f"[rank1]: {REBUILD}", GONE),
        sure=0.55,
        rank=1,
        saying=["found the semaphore of its parent gone"],
    ),
    passes_over(wreckage(REBUILD)),
    passes_over(wreckage("step 3", GONE)),
    recognises(
        wreckage(
            "[rank0]: NCCL WARN unlink shared memory /dev/shm/nccl-WxYzAb failed, error: No such "
            "file or directory (2)"
        ),
        sure=0.85,
        what="/dev/shm/nccl-WxYzAb",
        saying=["RemoveIPC=no", "loginctl"],
    ),
    recognises(
        wreckage(
            "RuntimeError: unable to open shared memory object </torch_4711_1> in read-write mode: "
            "No such file or directory (2)"
        ),
        sure=0.5,
        what="/torch_4711_1",
        saying=["its creator had died"],
    ),
    passes_over(
        wreckage(
            "NCCL WARN Error while attaching to shared memory segment /dev/shm/nccl-x (size 0), "
            "error: No such file or directory (2)"
        )
    ),
    passes_over(wreckage("Error: failed to extend /dev/shm/nccl-x to 9637892 bytes")),
)
