from __future__ import annotations

from holdfast.remains.nouns import Line, Raised
from holdfast.signals import Frame
from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

FETCH = '  File "/opt/venv/torch/multiprocessing/reductions.py", line 541, in rebuild_storage_fd'
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"


def raised(kind: str, function: str) -> Raised:
    return Raised(
        kind=kind,
        text="[Errno 111] Connection refused",
        frames=(Frame(function=function, file="reductions.py", line=541),),
        line=Line(text=REFUSED, source="job.log", number=20, rank=2),
    )


test_recognise = recognise_table(
    "dead-producer",
    recognises(  # Python 2
        wreckage(FETCH, "socket.error: [Errno 111] Connection refused"),
        sure=0.93,
        what="the process that sent the tensor",
        saying=["no longer exists"],
    ),
    passes_over(wreckage("socket.error: [Errno 111] Connection refused")),
    recognises(
        wreckage(f"[rank2]: {FETCH}", f"[rank2]: {REFUSED}"),
        sure=0.93,
        what="the process that sent the tensor",  # rank 2 is its victim
        victims=[2],
        saying=["rank 2 took a tensor from a queue", "file_system"],
    ),
    recognises(
        wreckage(
            f"[rank2]: {FETCH}", raised=(raised("ConnectionRefusedError", "rebuild_storage_fd"),)
        ),
        sure=0.93,
        what="the process that sent the tensor",
        saying=["no longer exists"],
    ),
    recognises(
        wreckage(FETCH, "EOFError"),
        sure=0.75,
        what="the process that sent the tensor",
        saying=["a process took a tensor"],
    ),
    recognises(
        wreckage(
            "[W CudaIPCTypes.cpp:15] Producer process has been terminated before all shared CUDA "
            "tensors released."
        ),
        sure=0.6,
        saying=["end the sender last"],
    ),
    passes_over(wreckage(FETCH, "RuntimeError: received 0 items of ancdata")),
    passes_over(wreckage(REFUSED)),
    passes_over(wreckage(f"[rank1]: {FETCH}", f"[rank2]: {REFUSED}")),
)
