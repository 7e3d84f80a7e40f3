"""A small Gloo job with loader workers and shared memory; breaks or waits on demand.

family.py NOTES ENDING     'well'; 'kill' (rank 1 kills itself in the first attempt); 'wait' (for
                           ever). Unless it ends well each rank also has a helper in a session of
                           its own. Rank 0 notes, once an attempt, its store's port and how many
                           files its launcher has open, as a line of NOTES.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator

import torch
import torch.distributed as dist
from torch.utils.data import DataLoader, IterableDataset

NOTES, ENDING = sys.argv[1:]
STEPS = 6


class Numbers(IterableDataset[torch.Tensor]):
    def __iter__(self) -> Iterator[torch.Tensor]:
        while True:
            yield torch.ones(4)


def note() -> None:
    told = {
        "attempt": int(os.environ["TORCHELASTIC_RESTART_COUNT"]),
        "port": int(os.environ["MASTER_PORT"]),
        "files": len(os.listdir(f"/proc/{os.getppid()}/fd")),
    }
    with open(NOTES, "a") as file:
        file.write(json.dumps(told) + "\n")


def main() -> None:
    dist.init_process_group("gloo")
    rank, first = dist.get_rank(), os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    if ENDING != "well" and first:
        subprocess.Popen(["sleep", "600"], start_new_session=True)
    parameter = torch.nn.Parameter(torch.ones(4))
    optimizer = torch.optim.SGD([parameter], lr=0.1)
    for step, batch in enumerate(DataLoader(Numbers(), num_workers=1, batch_size=None)):
        dist.all_reduce(batch)
        parameter.grad = batch
        optimizer.step()
        if step == 2 and rank == 0:
            note()
        dist.barrier()  # the launcher's files are counted before anything breaks
        if step == 3 and ENDING == "kill" and first and rank == 1:
            os.kill(os.getpid(), signal.SIGKILL)
        if ENDING == "wait":
            time.sleep(0.05)
        elif step == STEPS:
            break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
