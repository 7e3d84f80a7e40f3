"""A deterministic DDP training that saves and resumes by our library.

    FOLDER EVERY STEPS [KEY=VALUE…]

Prints one line per step on rank 0 and the digest of everything at the end. What may be asked for:
pause=S a step, kill=RANK:STEP (in the first attempt), sleep=RANK:STEP:S, pad=MB of state.
"""

import hashlib
import json
import os
import signal
import sys
import time
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import holdfast

FOLDER, EVERY, STEPS = sys.argv[1], sys.argv[2], int(sys.argv[3])
ASKED = dict(word.split("=", 1) for word in sys.argv[4:])
ATTEMPT = int(os.environ.get("TORCHELASTIC_RESTART_COUNT", "0"))


def misbehave(rank: int, step: int) -> None:
    time.sleep(float(ASKED.get("pause", "0")))
    if ATTEMPT == 0 and ASKED.get("kill") == f"{rank}:{step}":
        os.kill(os.getpid(), signal.SIGKILL)
    who, when, seconds = ASKED.get("sleep", "-1:0:0").split(":")
    if (rank, step) == (int(who), int(when)):
        print(json.dumps({"sleeps": step}), flush=True)
        time.sleep(float(seconds))


def digest(model: torch.nn.Module) -> str:
    whole = hashlib.sha256()
    for tensor in model.state_dict().values():
        whole.update(tensor.numpy().tobytes())
    return whole.hexdigest()


def main() -> None:
    dist.init_process_group("gloo")
    rank = dist.get_rank()
    torch.manual_seed(rank)
    net = torch.nn.Sequential(
        torch.nn.Linear(16, 32), torch.nn.BatchNorm1d(32), torch.nn.Dropout(0.3),
        torch.nn.Linear(32, 1),
    )  # fmt: skip
    net.register_buffer("pad", torch.zeros(int(float(ASKED.get("pad", "0")) * 250_000)))
    model = DistributedDataParallel(net)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
    state = holdfast.State(model=model, optimizer=optimizer, scheduler=scheduler)
    every: dict[str, Any] = {"every_steps": int(EVERY)} if EVERY.isdigit() else {"every": EVERY}
    ckpt = holdfast.Checkpoint(FOLDER, state, **every, config={"steps": STEPS})
    ckpt.resume()
    while state.step < STEPS:
        misbehave(rank, state.step)
        loss = model(torch.randn(8, 16)).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        if rank == 0:
            print(json.dumps({"step": state.step, "loss": loss.item().hex()}), flush=True)
        ckpt.step()
    ckpt.close()
    print(json.dumps({"rank": rank, "digest": digest(net), "safe": ckpt.last_committed}))
    dist.destroy_process_group()


main()
