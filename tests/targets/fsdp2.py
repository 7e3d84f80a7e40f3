"""An ordinary FSDP2 script that knows nothing of holdfast, 50 ms a step; see breakage.py."""

import time

import torch
import torch.distributed as dist
from breakage import STEPS, Breakage  # type: ignore[import-not-found]
from torch import nn
from torch.distributed.fsdp import fully_shard


class Block(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.up, self.down = nn.Linear(16, 32), nn.Linear(32, 16)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.relu(self.up(x)))
        return x + y


class Model(nn.Module):
    def __init__(self, breakage: Breakage) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(Block() for _ in range(3))
        self.head = nn.Linear(16, 1)
        self.breakage = breakage

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
            self.breakage.maybe()
        y: torch.Tensor = self.head(x)
        return x + y


def main() -> None:
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    breakage = Breakage()
    model = Model(breakage)
    for block in model.blocks:
        fully_shard(block)
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        breakage.step = step
        time.sleep(0.05)
        loss = model(torch.randn(8, 16)).pow(2).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
