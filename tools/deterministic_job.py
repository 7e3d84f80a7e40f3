"""The job of `tools.bit_identical`: every bit depends on its seed, and it kills itself as asked.

    LAYOUT FOLDER STEPS EVERY [KILL…]      a KILL is ATTEMPT:RANK:STEP:MILLISECONDS

A model in one of the LAYOUTS of job_layouts.py
with dropout and batch norm, AdamW, a schedule, shuffled data through loader workers. A killed
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
from job_layouts import laid_out  # type: ignore[import-not-found]
from torch.distributed.tensor import DTensor
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


def make_net() -> torch.nn.Module:
    return torch.nn.Sequential(
        torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.Dropout(0.4),
        torch.nn.Linear(64, 1),
    )  # fmt: skip


def local(tensor: torch.Tensor) -> bytes:
    """The bytes of this rank's part."""
    mine = tensor.to_local() if isinstance(tensor, DTensor) else tensor
    return mine.numpy().tobytes()


def digest(net: torch.nn.Module, optimizer: torch.optim.Optimizer) -> str:
    whole = hashlib.sha256()
    for tensor in net.state_dict().values():
        whole.update(local(tensor))
    for _, values in sorted(optimizer.state_dict()["state"].items()):
        for _, value in sorted(values.items()):
            whole.update(local(value))
    return whole.hexdigest()


def main() -> None:
    layout, folder, steps, every = sys.argv[1], sys.argv[2], int(sys.argv[3]), int(sys.argv[4])
    dist.init_process_group("gloo")
    rank, world = dist.get_rank(), dist.get_world_size()
    torch.manual_seed(1)
    net, other = make_net(), make_net()
    data = TensorDataset(torch.randn(SAMPLES, 8))
    torch.manual_seed(100 + rank)  # dropout differs from rank to rank
    model = laid_out(layout, net, other)
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
            plan_death(sys.argv[5:], rank, state.step)
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
    digests = [""] * world
    dist.all_gather_object(digests, digest(model, optimizer))
    if rank == 0:
        print(json.dumps({"digest": " ".join(digests)}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
