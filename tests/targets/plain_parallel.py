"""Parallel trainings with plain modules, saved and resumed; the last one is refused. argv: FOLDER

Prints on each rank, for each training, whether the resumed one has the bits of the undisturbed one.
"""

import json
import sys
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.optim import ZeroRedundancyOptimizer
from torch.nn.parallel import DistributedDataParallel

import holdfast

FOLDER = sys.argv[1]
dist.init_process_group("gloo")
RANK, WORLD = dist.get_rank(), dist.get_world_size()


class Muon(torch.optim.Optimizer):
    """Momentum only for this rank's share of the parameters; their new values go to all."""

    def __init__(self, parameters: Any) -> None:
        super().__init__(parameters, {"lr": 0.01})

    @torch.no_grad()
    def step(self, closure: Any = None) -> None:  # type: ignore[override]
        for i, parameter in enumerate(self.param_groups[0]["params"]):
            if i % WORLD == RANK:
                kept = self.state[parameter].setdefault("momentum", torch.zeros_like(parameter))
                parameter.sub_(kept.mul_(0.9).add_(parameter.grad), alpha=0.01)
            dist.broadcast(parameter, i % WORLD)


class Training:
    per_rank: tuple[str, ...] = ("model", "optimizer")

    def __init__(self) -> None:
        self.model = self.make_model()
        self.optimizer = self.make_optimizer()
        self.state = holdfast.State(
            model=self.model, optimizer=self.optimizer, per_rank=self.per_rank
        )

    def make_model(self) -> nn.Module:
        torch.manual_seed(RANK)
        return nn.Linear(6, 6)

    def make_optimizer(self) -> torch.optim.Optimizer:
        return torch.optim.AdamW(self.model.parameters(), lr=0.01)

    def step(self) -> None:
        self.optimizer.zero_grad()
        self.model(torch.randn(8, 6)).square().mean().backward()
        self.synchronize()
        self.optimizer.step()

    def synchronize(self) -> None:
        """Not the parts of a model."""

    def run(self, folder: str, *, until: int) -> list[torch.Tensor]:
        torch.manual_seed(10 + RANK)
        with holdfast.Checkpoint(folder, self.state, every="1h") as ckpt:
            ckpt.resume()
            while self.state.step < until:
                self.step()
                ckpt.step()
            assert ckpt.save()
        return [tensor.clone() for tensor in self.model.state_dict().values()]


class Stages(Training):
    def make_model(self) -> nn.Module:
        torch.manual_seed(RANK)
        return nn.Sequential(nn.Linear(6, 4 + RANK), nn.Tanh(), nn.Linear(4 + RANK, 6))


class Replicas(Training):
    per_rank: tuple[str, ...] = ()

    def make_model(self) -> nn.Module:
        torch.manual_seed(RANK)
        return DistributedDataParallel(
            nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6)), broadcast_buffers=False
        )


class SplitOptimizer(Replicas):
    per_rank = ("optimizer",)

    def make_model(self) -> nn.Module:
        return DistributedDataParallel(nn.Sequential(nn.Linear(6, 6), nn.Linear(6, 6)))

    def make_optimizer(self) -> torch.optim.Optimizer:
        return ZeroRedundancyOptimizer(self.model.parameters(), torch.optim.AdamW, lr=0.01)


class SplitMomentum(SplitOptimizer):
    def make_optimizer(self) -> torch.optim.Optimizer:
        return Muon(self.model.parameters())


class Experts(Training):
    per_rank = ()


def resumed_bit_for_bit(make: Callable[[], Training]) -> bool:
    name = make.__name__
    expected = make().run(f"{FOLDER}/{name}-whole", until=8)
    make().run(f"{FOLDER}/{name}", until=4)
    found = make().run(f"{FOLDER}/{name}", until=8)
    return all(map(torch.equal, found, expected))


for kind in (Training, Stages, SplitOptimizer, SplitMomentum):
    print(json.dumps({"rank": RANK, "what": kind.__name__, "equal": resumed_bit_for_bit(kind)}))
Replicas().run(f"{FOLDER}/replicas", until=4)
print(json.dumps({"rank": RANK, "what": "Replicas", "equal": True}), flush=True)
Experts().run(f"{FOLDER}/experts", until=4)
