"""A small model, ways to shard it, and a training; for sharded_states.py."""

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.distributed.device_mesh import DeviceMesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.distributed.tensor.parallel import ColwiseParallel, RowwiseParallel, parallelize_module

from holdfast.checkpoint.state import State

Cut = Callable[[nn.Module, DeviceMesh], object]


class CopyBlock(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm, self.up, self.down = nn.LayerNorm(6), nn.Linear(6, 10), nn.Linear(10, 6)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        y: torch.Tensor = self.down(torch.relu(self.up(self.norm(x))))
        return x + y


class Model(nn.Module):
    """Sides that no number of ranks divides, a tied weight, and statistics of each rank's own."""

    def __init__(self) -> None:
        super().__init__()
        self.blocks = nn.ModuleList(CopyBlock() for _ in range(2))
        self.statistics = nn.BatchNorm1d(6)
        self.enter, self.leave = nn.Linear(6, 6), nn.Linear(6, 6)
        self.leave.weight = self.enter.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = self.statistics(self.enter(x))
        for block in self.blocks:
            x = block(x)
        y: torch.Tensor = self.leave(x)
        return y


def by_fsdp(model: Any, mesh: DeviceMesh, reshard_after_forward: bool | int | None = None) -> None:
    for block in model.blocks:
        fully_shard(block, mesh=mesh, reshard_after_forward=reshard_after_forward)
    fully_shard(model, mesh=mesh, reshard_after_forward=reshard_after_forward)


def by_both(model: Any, mesh: DeviceMesh) -> None:
    for block in model.blocks:
        plan = {"up": ColwiseParallel(), "down": RowwiseParallel()}
        parallelize_module(block, mesh["tp"], plan)
    by_fsdp(model, mesh["dp"])


class Run:
    """One training on the ranks of a mesh."""

    def __init__(self, mesh: DeviceMesh, cut: Cut, seed: int, *, evaluate: bool = False) -> None:
        torch.manual_seed(seed)
        self.model = Model()
        cut(self.model, mesh)
        self.optimizer = torch.optim.AdamW(self.model.parameters(), lr=0.01)
        if evaluate:
            self.evaluate()
        self.state = State(model=self.model, optimizer=self.optimizer, best=0.5)
        # Ranks that are tensor parallel see the same samples.
        torch.manual_seed(seed + mesh["dp"].get_local_rank())

    def evaluate(self) -> None:
        with torch.no_grad():
            self.model(torch.randn(8, 6))

    def train(self, steps: int, *, evaluate: bool = False) -> list[str]:
        losses = []
        for _ in range(steps):
            loss = self.model(torch.randn(8, 6)).square().mean()
            self.optimizer.zero_grad()
            loss.backward()
            self.optimizer.step()
            losses.append(loss.item().hex())
            if evaluate:
                self.evaluate()
        return losses

    def whole(self) -> dict[str, torch.Tensor]:
        """All that ranks share, gathered."""
        found = {f"model.{name}": value for name, value in self.model.named_parameters()}
        for name, parameter in self.model.named_parameters():
            for key, value in self.optimizer.state[parameter].items():
                found[f"optimizer.{name}.{key}"] = value
        return {
            name: value.full_tensor().detach() if isinstance(value, DTensor) else value.detach()
            for name, value in found.items()
        }


def differing(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> list[str]:
    """Names of what differs."""
    differ = [n for n in one if n not in other or not torch.equal(one[n], other[n])]
    return differ + [name for name in other if name not in one]
