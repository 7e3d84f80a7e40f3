"""A rank that takes some steps, then sits in C with the GIL held for ever."""

import ctypes

import torch
import torch.distributed as dist

dist.init_process_group("gloo")
parameter = torch.nn.Parameter(torch.ones(3))
optimizer = torch.optim.SGD([parameter], lr=0.1)
for _ in range(5):
    parameter.grad = torch.ones(3)
    dist.all_reduce(parameter.grad)
    optimizer.step()
print("holding", flush=True)
ctypes.PyDLL(None).sleep(600)  # PyDLL keeps the GIL; CDLL would give it away
