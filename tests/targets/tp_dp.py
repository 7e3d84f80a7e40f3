"""Two replicas (FSDP2) of a model split over two ranks (tensor parallel), as the tutorials have
it; knows nothing of holdfast, 50 ms a step; see breakage.py.

    ranks 0 and 1 hold one replica, 2 and 3 the other; 0 and 2 share gradients, 1 and 3 do
"""

import time

import torch
import torch.distributed as dist
from breakage import STEPS, Breakage  # type: ignore[import-not-found]
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module


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
        self.breakage = breakage

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for block in self.blocks:
            x = block(x)
            self.breakage.maybe()
        return x.pow(2)


def main() -> None:
    dist.init_process_group("gloo")
    mesh = init_device_mesh("cpu", (2, 2), mesh_dim_names=("dp", "tp"))
    torch.manual_seed(0)
    breakage = Breakage(mesh["tp"].get_group())
    model = Model(breakage)
    plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
    for block in model.blocks:
        parallelize_module(block, mesh["tp"], plan)
        fully_shard(block, mesh=mesh["dp"])
    fully_shard(model, mesh=mesh["dp"])
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for step in range(STEPS):
        breakage.step = step
        time.sleep(0.05)
        torch.manual_seed(100 * step + mesh["dp"].get_local_rank())
        loss = model(torch.randn(8, 16)).mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if step % 10 == 0 and dist.get_rank() == 0:
            print(f"step {step}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
