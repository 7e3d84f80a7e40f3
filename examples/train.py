"""A small DDP training that knows nothing of holdfast. It resumes from its own checkpoint.

BREAK=1 breaks it twice on purpose: rank 2 is killed in the first attempt, rank 1 hangs in the
second; the third ends well.
"""

import os
import signal
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 60
CHECKPOINT = os.environ.get("CHECKPOINT", "demo.pt")


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(32, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    first = 0
    if os.path.exists(CHECKPOINT):
        saved = torch.load(CHECKPOINT, weights_only=True)
        model.load_state_dict(saved["model"])
        optimizer.load_state_dict(saved["optimizer"])
        first = saved["step"]
    if rank == 0:
        print(f"training from step {first} to {STEPS}", flush=True)
    for step in range(first, STEPS):
        time.sleep(0.05)
        break_on_purpose(rank, step)
        loss = model(torch.randn(16, 32)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if rank == 0 and (step + 1) % 10 == 0:
            print(f"step {step + 1}: loss {loss.item():.4f}", flush=True)
            state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
            torch.save({**state, "step": step + 1}, f"{CHECKPOINT}.part")
            os.replace(f"{CHECKPOINT}.part", CHECKPOINT)
    dist.barrier()
    dist.destroy_process_group()


def break_on_purpose(rank: int, step: int) -> None:
    attempt = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))
    if not os.environ.get("BREAK"):
        return
    if (attempt, rank, step) == (0, 2, 24):
        os.kill(os.getpid(), signal.SIGKILL)
    if (attempt, rank, step) == (1, 1, 44):
        time.sleep(3600)


if __name__ == "__main__":
    main()
