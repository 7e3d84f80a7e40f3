"""A scaler that skips the iterations with infinite gradients: 3 of 8."""

import torch

parameter = torch.nn.Parameter(torch.ones(2))
optimizer = torch.optim.SGD([parameter], lr=0.01)
scaler = torch.amp.GradScaler("cpu", init_scale=2.0)
for iteration in range(8):
    optimizer.zero_grad()
    factor = float("inf") if iteration in (0, 3, 4) else 1.0
    scaler.scale((parameter * factor).sum()).backward()  # type: ignore[no-untyped-call]
    scaler.step(optimizer)
    scaler.update()
