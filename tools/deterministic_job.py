"""The job of `tools.bit_identical`: every bit depends on its seed, and it kills itself as asked.

    FOLDER STEPS EVERY [KILL…]      a KILL is ATTEMPT:RANK:STEP:MILLISECONDS

DDP with dropout and batch norm, AdamW, a schedule, shuffled data through loader workers. A killed
rank dies by SIGKILL that many milliseconds after it began that step, wherever it then is.
"""

from __future__ import annotations

import hashlib
import json
import os
import signal
import sys
import threading
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import holdfast

SAMPLES, GLOBAL_BATCH = 1000, 24


def plan_death(kills: list[str], rank: int, step: int) -> None:
    attempt = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    for kill in kills:
        when, who, at, milliseconds = kill.split(":")
        if (when, int(who), int(at)) == (attempt, rank, step):
            die = threading.Timer(int(milliseconds) / 1000, os.kill, (os.getpid(), signal.SIGKILL))
            die.daemon = True
            die.start()


def digest(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    whole = hashlib.sha256()
    for tensor in net.state_dict().values():
        whole.update(tensor.numpy().tobytes())
    for _, values in sorted(optimizer.state_dict()["state"].items()):
        for _, value in sorted(values.items()):
            whole.update(value.numpy().tobytes())
    return whole.hexdigest()


def main() -> None:
    folder, steps, every = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    net = torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.4),
        torch.nn.Linear(64, 1),
    )  # fmt: skip
    data = TensorDataset(torch.randn(SAMPLES, 8))
    torch.manual_seed(100 + rank)  # dropout differs from rank to rank
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, steps)
    sampler = holdfast.Sampler(
        data, global_batch_size=GLOBAL_BATCH, micro_batch_size=GLOBAL_BATCH // world
    )
    loader = DataLoader(data, batch_sampler=sampler, num_workers=1)
    state = holdfast.State(model=model, optimizer=optimizer, scheduler=scheduler, data=sampler)
    ckpt = holdfast.Checkpoint(folder, state, every_steps=every)
    ckpt.resume()
    while state.step < steps:
        for (batch,) in sampler.follow(loader):
            plan_death(sys.argv[4:], rank, state.step)
            loss = model(batch).square().mean() * sampler.loss_weight
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            scheduler.step()
            line = {"rank": rank, "step": state.step, "loss": loss.item().hex()}
            print(json.dumps(line), flush=True)
            time.sleep(0.01)
            ckpt.step()
            if state.step >= steps:
                break
    ckpt.close()
    if rank == 0:
        print(json.dumps({"digest": digest(net, optimizer)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
