"""An ordinary DDP script, 50 ms a step: train.py STEPS [FAULT RANK MARK]

At step 20 that rank writes the time into the file MARK, and breaks.
With NVRX_HEARTBEATS set it also does what NVIDIA's launcher asks of a script.
"""

import os
import signal
import sys
import time
from collections.abc import Callable
from importlib import import_module

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = int(sys.argv[1])
FAULT, CULPRIT, MARK = (
    (sys.argv[2], int(sys.argv[3]), sys.argv[4]) if sys.argv[2:] else ("", -1, "")
)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    model = DistributedDataParallel(torch.nn.Linear(64, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    beat = heartbeat() if os.environ.get("NVRX_HEARTBEATS") else None
    for step in range(STEPS):
        if beat:
            beat()
        time.sleep(0.05)
        if rank == CULPRIT and step == 20:
            break_it()
        loss = model(torch.randn(8, 64)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and step in (0, STEPS - 1):
            print(f"step {step}", flush=True)
    dist.destroy_process_group()


def heartbeat() -> Callable[[], None]:
    # By name, since it is there only for its own launcher.
    client = import_module("nvidia_resiliency_ext.fault_tolerance").RankMonitorClient()
    client.init_workload_monitoring()
    beat: Callable[[], None] = client.send_heartbeat
    return beat


def break_it() -> None:
    with open(MARK, "w", encoding="ascii") as file:
        file.write(str(time.monotonic()))
    if FAULT == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    elif FAULT == "exit":
        os._exit(0)
    elif FAULT == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
    elif FAULT == "sleep":
        time.sleep(10_000)


if __name__ == "__main__":
    main()
