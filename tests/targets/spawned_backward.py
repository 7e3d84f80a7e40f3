"""`mp.spawn` of three ranks without any variable: rank 1 is busy elsewhere in the third step, the
others wait for it in backward()."""

from __future__ import annotations

import pathlib
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

CULPRIT = 1


def read_slowly() -> None:
    number = 0
    until = time.monotonic() + 600
    while time.monotonic() < until:
        number = number * 3 % 7


def main(rank: int, meeting: str, told: str) -> None:
    dist.init_process_group("gloo", init_method=f"file://{meeting}", rank=rank, world_size=3)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(8, 8))
    for step in range(3):
        if step == 2:
            pathlib.Path(f"{told}.{rank}").touch()
            if rank == CULPRIT:
                read_slowly()
        model(torch.ones(4, 8)).sum().backward()


if __name__ == "__main__":
    mp.spawn(main, args=(sys.argv[1], sys.argv[2]), nprocs=3)  # type: ignore[attr-defined, no-untyped-call]
