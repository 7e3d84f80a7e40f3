"""A script that starts its own ranks, as torch's DDP tutorial does, at a port of its own.

spawn_own_ranks.py PORT [sleep|raise]      rank 1 does that at step 5
"""

import os
import sys
import time

import torch
import torch.distributed as dist
import torch.multiprocessing as mp
from torch.nn.parallel import DistributedDataParallel

WORLD = 2


def run(rank: int, port: str, fault: str) -> None:
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    os.environ["MASTER_PORT"] = port
    dist.init_process_group("gloo", rank=rank, world_size=WORLD)
    model = DistributedDataParallel(torch.nn.Linear(4, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for step in range(8):
        if rank == 1 and step == 5:
            if fault == "sleep":
                time.sleep(600)
            if fault == "raise":
                raise ValueError("the batch is empty")
        optimizer.zero_grad()
        model(torch.ones(2, 4)).sum().backward()
        optimizer.step()
    dist.destroy_process_group()


if __name__ == "__main__":
    words = (*sys.argv[1:], "")
    mp.spawn(run, args=words[:2], nprocs=WORLD)  # type: ignore[attr-defined,no-untyped-call]
