"""A job that destroys its group after 30 steps and makes it again, at another store and with other
numbers: made_again.py STEPS [FAULT RANK]. The fault comes in the second one; see breakage.py.
"""

import os
import time

import torch
import torch.distributed as dist
from breakage import CULPRIT, STEPS, Breakage  # type: ignore[import-not-found]
from torch._C._distributed_c10d import TCPStore
from torch.nn.parallel import DistributedDataParallel

RANK, SIZE = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
PORT = int(os.environ["MASTER_PORT"]) + 1
BEFORE = 30


def train(steps: int, breakage: Breakage | None) -> None:
    model = DistributedDataParallel(torch.nn.Linear(16, 16))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(steps):
        time.sleep(0.05)
        loss = model(torch.randn(4, 16)).pow(2).mean()
        if breakage:
            breakage.step = step
            breakage.maybe()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()


def main() -> None:
    dist.init_process_group("gloo")
    train(BEFORE, None)
    dist.destroy_process_group()
    number = SIZE - 1 - RANK
    store = TCPStore("127.0.0.1", PORT, SIZE, is_master=number == 0)
    dist.init_process_group("gloo", store=store, rank=number, world_size=SIZE)
    breakage = Breakage()
    breakage.due = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0" and RANK == CULPRIT
    train(STEPS, breakage)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
