"""An ordinary data-parallel training script that has never heard of holdfast."""

import os
import sys
import threading
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

STEPS = 12

dist.init_process_group("gloo", timeout=timedelta(seconds=300))
torch.manual_seed(0)
model = DistributedDataParallel(torch.nn.Linear(4, 1))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for step in range(STEPS):
    optimizer.zero_grad()
    loss = model(torch.full((2, 4), float(dist.get_rank()))).square().mean()
    loss.backward()
    optimizer.step()
    print(f"step {step} loss {loss.item():.6f}", flush=True)
print("threads:", threading.active_count(), file=sys.stderr)
print("path:", sorted(sys.path), "variables:", os.environ.get("PYTHONPATH"))
dist.destroy_process_group()
