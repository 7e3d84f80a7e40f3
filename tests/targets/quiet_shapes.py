"""Healthy jobs of an unusual shape: quiet_shapes.py WHICH SECONDS

accumulation  64 micro-batches to a step
optimizers    several optimizers in one step, one of them called once per parameter group
alone         a world of one rank
trees         every step starts a small tree of processes, some of which outlive it
prints        tens of megabytes of output from every rank, some of it in very long lines
atexit        an exit handler uploads for SECONDS, as trackers do, on every rank, without a sound
"""

import atexit
import subprocess
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

WHICH, SECONDS = sys.argv[1], float(sys.argv[2])


def together(end: float) -> bool:
    """All ranks stop at the same step, whatever their clocks say."""
    late = torch.tensor([float(time.monotonic() > end)])
    dist.broadcast(late, 0)
    return not late.item()


def backward(model: torch.nn.Module) -> None:
    model(torch.randn(8, 64)).pow(2).mean().backward()


def accumulation(model: DistributedDataParallel, end: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while together(end):
        optimizer.zero_grad()
        with model.no_sync():
            for _ in range(63):
                time.sleep(0.06)
                backward(model)
        backward(model)
        optimizer.step()


def optimizers(model: DistributedDataParallel, end: float) -> None:
    first = torch.optim.SGD(model.parameters(), lr=0.01)
    groups = [torch.optim.SGD([p], lr=0.001) for p in model.parameters()]
    while together(end):
        time.sleep(1.0)
        backward(model)
        first.step()
        for one in groups:
            one.step()
        first.zero_grad()


def train(model: DistributedDataParallel, end: float) -> None:
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    while together(end):
        time.sleep(0.05)
        optimizer.zero_grad()
        backward(model)
        optimizer.step()
        if WHICH == "trees":
            subprocess.run(["sh", "-c", "(sleep 1 &) ; true | cat"], check=True)
        if WHICH == "prints":
            print("x" * 1_000_000)
            print("\n".join(f"line {number}" for number in range(10_000)), flush=True)


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    loop = {"accumulation": accumulation, "optimizers": optimizers}.get(WHICH, train)
    length = 3.0 if WHICH == "atexit" else SECONDS
    loop(DistributedDataParallel(torch.nn.Linear(64, 1)), time.monotonic() + length)
    if WHICH == "atexit":
        atexit.register(time.sleep, SECONDS)
    dist.destroy_process_group()


main()
