"""Restores all but the data position: a resume begins the epoch again."""

import os

import torch
import torch.distributed as dist
from task import EVERY, STEPS, Batches, make_model  # type: ignore[import-not-found]
from torch.nn.parallel import DistributedDataParallel

LAST = "ckpts/last.pt"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    os.makedirs("ckpts", exist_ok=True)
    done = 0
    if os.path.exists(LAST):
        saved = torch.load(LAST)
        done = saved["step"]
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        torch.set_rng_state(saved["rng"][rank])
    batches = Batches().since(0)
    for step in range(done + 1, STEPS + 1):
        inputs, targets = next(batches)
        (model(inputs) - targets).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0:
            rng = [torch.get_rng_state()] * dist.get_world_size()
            dist.all_gather_object(rng, torch.get_rng_state())
            state = {
                "step": step,
                "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict(),
                "rng": rng,
            }
            if rank == 0:
                torch.save(state, LAST + ".new")
                os.replace(LAST + ".new", LAST)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
