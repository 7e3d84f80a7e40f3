"""Two ranks to step 30, killed once at 17. argv: how it resumes ('not', 'torch', 'holdfast')."""

from __future__ import annotations

import glob
import os
import signal
import sys
import time

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import holdfast

HOW = sys.argv[1]
FILE = "last.pt"
dist.init_process_group("gloo")
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(8, 8))
optimizer = torch.optim.AdamW(model.parameters())
step = 0
if HOW == "torch" and os.path.exists(FILE):
    saved = torch.load(FILE)
    model.load_state_dict(saved["model"])
    optimizer.load_state_dict(saved["optimizer"])
    step = saved["step"]
if HOW == "holdfast":
    state = holdfast.State(model=model, optimizer=optimizer)
    checkpoint = holdfast.Checkpoint("ckpts", state, every_steps=5)
    step = checkpoint.resume()
while step < 30:
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    optimizer.zero_grad()
    step += 1
    if HOW == "torch" and step == 10 and dist.get_rank() == 0:
        state_now = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        torch.save({**state_now, "step": step}, FILE)
    if HOW == "holdfast":
        checkpoint.step()
    if step == 17 and os.environ["TORCHELASTIC_RESTART_COUNT"] == "0":
        while HOW == "holdfast" and not glob.glob("ckpts/step-*"):
            time.sleep(0.01)  # until one is safe
        dist.barrier()
        if dist.get_rank() == 1:
            os.kill(os.getpid(), signal.SIGKILL)
if HOW == "holdfast":
    checkpoint.close()
dist.destroy_process_group()
