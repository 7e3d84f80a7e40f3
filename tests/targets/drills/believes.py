"""As nanoGPT does: loads whatever is in its checkpoint, and saves no random numbers, from which its
batches are drawn."""

import os
import time

import torch
import torch.distributed as dist
from task import EVERY, PACE, STEPS, make_model  # type: ignore[import-not-found]
from torch.nn.parallel import DistributedDataParallel

LAST = "out/ckpt.pt"


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    model = DistributedDataParallel(make_model())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    os.makedirs("out", exist_ok=True)
    done = 0
    if os.path.exists(LAST):
        saved = torch.load(LAST)
        done = saved["step"]
        model.module.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
    for step in range(done + 1, STEPS + 1):
        time.sleep(PACE)
        inputs = torch.randn(16, 32)
        (model(inputs) - inputs.sum(dim=1, keepdim=True)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step % EVERY == 0 and rank == 0:
            state = {
                "step": step,
                "model": model.module.state_dict(),
                "optimizer": optimizer.state_dict(),
            }
            torch.save(state, f"{LAST}.tmp")
            os.replace(f"{LAST}.tmp", LAST)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
