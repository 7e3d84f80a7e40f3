"""A script that joins by `holdfast.init`, sums once, and leaves the rest to it."""

import os
import signal
import sys

import torch
import torch.distributed as dist

import holdfast

if os.environ.get("TORCHELASTIC_RESTART_COUNT") == "0" and os.environ["RANK"] == "1":
    holdfast.init("gloo", timeout=60)
    os.kill(os.getpid(), signal.SIGKILL)

run = holdfast.init("gloo", timeout=60)
value = torch.ones(1)
dist.all_reduce(value)
again = holdfast.init()
if run.world_size == 1 and "MASTER_ADDR" in os.environ:
    sys.exit("the environment was changed")
line = f"rank {run.rank} of {run.world_size} on {run.device}: {value.item():g} {again == run}\n"
sys.stdout.write(line)  # in one piece: both ranks write into one pipe
