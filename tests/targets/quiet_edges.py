"""Slow beginnings and ends of a healthy job: quiet_edges.py WHICH SECONDS

imports   long computing before torch is imported, as big libraries do, on every rank
before    rank 1 sleeps before it joins the group, as under a debugger
teardown  rank 1 takes long in an exit handler and in a thread that is waited for
"""

import atexit
import os
import sys
import threading
import time

WHICH, SECONDS = sys.argv[1], float(sys.argv[2])


def compute(seconds: float) -> None:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        sum(range(10_000))


if WHICH == "imports":
    compute(SECONDS)

import torch  # noqa: E402
import torch.distributed as dist  # noqa: E402
from torch.nn.parallel import DistributedDataParallel  # noqa: E402


def main() -> None:

    torch.set_num_threads(1)
    if WHICH == "before" and os.environ["RANK"] == "1":
        time.sleep(SECONDS)
    dist.init_process_group("gloo")
    model = DistributedDataParallel(torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for _ in range(60):
        time.sleep(0.03)
        optimizer.zero_grad()
        model(torch.randn(8, 64)).pow(2).mean().backward()
        optimizer.step()
    if WHICH == "teardown" and dist.get_rank() == 1:
        atexit.register(compute, SECONDS / 2)
        threading.Thread(target=time.sleep, args=(SECONDS / 2,)).start()
    dist.destroy_process_group()


main()
