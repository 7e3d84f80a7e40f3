"""Saves, and never loads: every start begins at step 0."""

import os

import torch
import torch.distributed as dist
from task import EVERY, STEPS, Batches, make_model  # type: ignore[import-not-found]
from torch.nn.parallel import DistributedDataParallel


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(dist.get_rank())
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    os.makedirs("ckpts", exist_ok=True)
    batches = Batches().since(0)
    for step in range(1, STEPS + 1):
        inputs, targets = next(batches)
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0 and dist.get_rank() == 0:
            state = {"model": model.module.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save(state, f"ckpts/step-{step}.pt.new")
            os.replace(f"ckpts/step-{step}.pt.new", f"ckpts/step-{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
