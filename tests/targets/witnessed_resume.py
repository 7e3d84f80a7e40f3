"""A DDP training that resumes on any number of ranks, with loader workers and a process of its own,
for the witness of a drill: `witnessed_resume.py STEPS`."""

import multiprocessing
import os
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, TensorDataset

import holdfast

SAVED_AFTER = 3
FILE = "checkpoint.pt"


def rank_is_inherited() -> None:
    """In a process that is no rank, though the environment says so."""
    assert "RANK" in os.environ
    torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=0.1).step()


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(3)
    inputs = torch.randn(64, 4)
    dataset = TensorDataset(inputs, inputs.sum(1, keepdim=True))
    sampler = holdfast.Sampler(dataset, global_batch_size=8, micro_batch_size=2, seed=5)
    net = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 1))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    step = 0
    if os.path.exists(FILE):
        saved = torch.load(FILE)
        net.load_state_dict(saved["net"])
        optimizer.load_state_dict(saved["optimizer"])
        sampler.load_state_dict(saved["sampler"])
        step = saved["step"]
    elif dist.get_rank() == 0:
        child = multiprocessing.get_context("spawn").Process(target=rank_is_inherited)
        child.start()
        child.join()
        assert child.exitcode == 0
    loader = DataLoader(dataset, batch_sampler=sampler, num_workers=1)
    for batch, targets in sampler.follow(loader):
        loss: Any = nn.functional.mse_loss(model(batch), targets) * sampler.loss_weight
        loss.backward()
        if sampler.is_last_micro_batch:
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            if step == SAVED_AFTER and dist.get_rank() == 0:
                saved = {"net": net.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**saved, "sampler": sampler.state_dict(), "step": step}, FILE)
            if step == int(sys.argv[1]):
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
