"""An ordinary DDP script that knows nothing of holdfast, 50 ms a step; breaks itself on demand.

ddp.py STEPS [FAULT RANK]      the fault comes once, in the first attempt, at step 20; the moment
                               goes into the file named by DDP_FAULT_TIME_FILE, if there is one
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(sys.argv[1])
FAULT, CULPRIT = (sys.argv[2], int(sys.argv[3])) if len(sys.argv) > 3 else ("", -1)
AT = 20


def hog_memory() -> None:
    hoard = []
    while True:
        hoard.append(bytearray(16 << 20))
        hoard[-1][::4096] = b"x" * len(hoard[-1][::4096])


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    second = dist.new_group()
    torch.manual_seed(0)
    model = DistributedDataParallel(
        torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.Linear(64, 1))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first_attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0") == "0"
    slow = 1.0
    for step in range(STEPS):
        time.sleep(0.05 * slow)
        if first_attempt and rank == CULPRIT and step == AT:
            note_the_time()
            if FAULT == "skip":  # the others continue with this step's collectives
                dist.all_reduce(torch.ones(3))
                continue
            slow = break_it(second)
        loss = model(torch.randn(8, 64)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and rank == 0:
            print(f"step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


def note_the_time() -> None:
    if "DDP_FAULT_TIME_FILE" in os.environ:
        with open(os.environ["DDP_FAULT_TIME_FILE"], "w") as file:
            file.write(str(time.time()))


def never_return() -> None:
    while True:
        pass


BREAKS: dict[str, Callable[[], Any]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(0),
    "segfault": lambda: ctypes.string_at(0),
    "hog": hog_memory,
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": lambda: time.sleep(10_000),
    "busy": never_return,
    "gil": lambda: ctypes.PyDLL(None).sleep(10_000),
    "size": lambda: dist.all_reduce(torch.ones(7)),
}


def break_it(second: dist.ProcessGroup) -> float:
    """Returns how much slower this rank is from now on, where the fault is one to live with."""
    if FAULT == "exception":
        raise ValueError("the batch is empty")
    if FAULT == "group":
        dist.all_reduce(torch.ones(1), group=second)
    elif FAULT in BREAKS:
        BREAKS[FAULT]()
    return 5.0 if FAULT == "slow" else 1.0


if __name__ == "__main__":
    main()
