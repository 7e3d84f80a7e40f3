from __future__ import annotations

from holdfast.analysis.source.source import Source
from tests.analysis.logs.patterns.made import traceback, wreckage
from tests.analysis.source.made_sources import python
from tests.faults.table import explain_table, flags, leaves, lint_table, passes_over, recognises

FETCH = '  File "/opt/venv/torch/multiprocessing/reductions.py", line 541, in rebuild_storage_fd'
REFUSED = "ConnectionRefusedError: [Errno 111] Connection refused"


test_explain = explain_table(
    "dead-producer",
    recognises(  # Python 2
        wreckage(FETCH, "socket.error: [Errno 111] Connection refused"),
        sure=0.93,
        what="the process that sent the tensor",
        saying=["had exited"],
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
            *traceback(
                REFUSED,
                "/opt/venv/torch/multiprocessing/reductions.py:541 rebuild_storage_fd",
                "/usr/lib/python3.11/multiprocessing/connection.py:635 SocketClient",
                rank=2,
            )
        ),
        sure=0.93,
        what="the process that sent the tensor",
        saying=["had exited"],
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
        saying=["make the sender exit last"],
    ),
    passes_over(wreckage(FETCH, "RuntimeError: received 0 items of ancdata")),
    passes_over(wreckage(REFUSED)),
    passes_over(wreckage(f"[rank1]: {FETCH}", f"[rank2]: {REFUSED}")),
)

QUEUE = """
import torch
import torch.multiprocessing as mp

def work(box, done):
    t = torch.ones(3)
    box.put({sent})
    {then}

if __name__ == "__main__":
    q = mp.Queue()
    done = mp.Event()
    p = mp.Process(target=work, args=(q, done))
    p.start()
    {first}
    {second}
"""


def queue(
    sent: str = "t", then: str = "pass", first: str = "p.join()", second: str = "print(q.get())"
) -> Source:
    return python(QUEUE.format(sent=sent, then=then, first=first, second=second))


test_lint = lint_table(
    "dead-producer",
    flags(
        "error",
        queue(),
        lines=[6],
        saying=["is joined before q.get (line 15)", "ConnectionRefusedError", "tensor.numpy()"],
    ),
    flags("error", queue(sent="(1, t.clone())"), lines=[6], saying=["is joined before"]),
    flags(
        "warning",
        queue(first="print(q.get())", second="p.join()"),
        lines=[6],
        saying=["may have exited by the time"],
    ),
    leaves(queue(then="done.wait()")),
    leaves(queue(sent="t.numpy()")),
    leaves(queue(sent="3")),
    leaves(queue(second="mp.set_sharing_strategy('file_system'); q.get()")),
    leaves(queue(first="pass", second="p.join()")),
)
