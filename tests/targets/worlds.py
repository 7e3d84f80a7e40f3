"""Two pairs of ranks, each with its own store and model, 50 ms a step: worlds.py STEPS [FAULT RANK]

Ranks 0 and 1 meet through a file, 2 and 3 at a port; knows nothing of holdfast, see breakage.py.
"""

import os
import tempfile
import time

import torch
import torch.distributed as dist
from breakage import CULPRIT, STEPS, Breakage  # type: ignore[import-not-found]
from torch._C._distributed_c10d import FileStore, Store, TCPStore
from torch.nn.parallel import DistributedDataParallel

RANK = int(os.environ["RANK"])
WORLD, NUMBER = divmod(RANK, 2)
ATTEMPT = os.environ["TORCHELASTIC_RESTART_COUNT"]
PORT = int(os.environ["MASTER_PORT"]) + 1


def join() -> None:
    if WORLD == 0:
        name = f"worlds-{os.environ['TORCHELASTIC_RUN_ID']}-{ATTEMPT}"
        store: Store = FileStore(os.path.join(tempfile.gettempdir(), name), 2)
    else:
        store = TCPStore("127.0.0.1", PORT, 2, is_master=NUMBER == 0)
    dist.init_process_group("gloo", store=store, rank=NUMBER, world_size=2)


def main() -> None:
    join()
    breakage = Breakage()
    breakage.due = ATTEMPT == "0" and RANK == CULPRIT
    width = 16 * (1 + WORLD)
    model = DistributedDataParallel(torch.nn.Linear(width, width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step in range(STEPS):
        breakage.step = step
        time.sleep(0.05)
        loss = model(torch.randn(4, width)).pow(2).mean()
        breakage.maybe()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
