"""An ordinary DDP script that knows nothing of holdfast, 50 ms a step; breaks itself on demand.

ddp.py STEPS [FAULT RANK]      the fault comes once, in the first attempt, at step 20; the moment
                               goes into the file named by DDP_FAULT_TIME_FILE, if there is one
"""

import atexit
import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
import traceback
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
        if first_attempt and rank == CULPRIT and step == AT and FAULT != "late":
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
    if first_attempt and rank == CULPRIT and FAULT == "late":
        fail_after_the_others()
    dist.destroy_process_group()


def note_the_time() -> None:
    if "DDP_FAULT_TIME_FILE" in os.environ:
        with open(os.environ["DDP_FAULT_TIME_FILE"], "w") as file:
            file.write(str(time.time()))


def raise_an_error() -> None:
    raise ValueError("the batch is empty")


def report_and_exit() -> None:
    """As Hydra does: no excepthook ever sees the exception."""
    try:
        raise_an_error()
    except ValueError:
        traceback.print_exc()
        sys.exit(1)


def leave_slowly() -> None:
    """Its peers lose it at once; the process itself takes two seconds to go, as with CUDA."""
    dist.destroy_process_group()
    atexit.register(time.sleep, 2.0)
    for number in map(int, os.listdir("/proc/self/fd")):
        with contextlib.suppress(OSError), socket.socket(fileno=os.dup(number)) as link:
            link.getpeername()  # connected, and none that listens: Gloo minds that
            link.shutdown(socket.SHUT_RDWR)
    sys.exit(0)


def fail_after_the_others() -> None:
    time.sleep(2.0)
    note_the_time()
    sys.exit(3)


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
    "report": report_and_exit,
    "leave": leave_slowly,
    "gil": lambda: ctypes.PyDLL(None).sleep(10_000),
    "size": lambda: dist.all_reduce(torch.ones(7)),
}


def break_it(second: dist.ProcessGroup) -> float:
    """Returns how much slower this rank is from now on, where the fault is one to live with."""
    if FAULT == "exception":
        raise_an_error()
    if FAULT == "group":
        dist.all_reduce(torch.ones(1), group=second)
    elif FAULT in BREAKS:
        BREAKS[FAULT]()
    return 5.0 if FAULT == "slow" else 1.0


if __name__ == "__main__":
    main()
