"""One optimizer per parameter, each run inside backward: seven iterations, four optimizers."""

import torch

model = torch.nn.Sequential(torch.nn.Linear(2, 2), torch.nn.Linear(2, 1))
optimizers: dict[torch.Tensor, torch.optim.SGD] = {
    p: torch.optim.SGD([p], lr=0.01) for p in model.parameters()
}


def step_now(parameter: torch.Tensor) -> None:
    optimizers[parameter].step()
    optimizers[parameter].zero_grad()


for p in model.parameters():
    p.register_post_accumulate_grad_hook(step_now)  # type: ignore[no-untyped-call]
for _ in range(7):
    model(torch.ones(1, 2)).sum().backward()
