"""How `tools.deterministic_job` lays its model out: DDP, FSDP2, HSDP, PP×FSDP2, EP.

Stages of the pipeline pass nothing on: each trains its own part, under its own names.
"""

from __future__ import annotations

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel

LAYOUTS = ("ddp", "fsdp", "hsdp", "pp-fsdp", "ep")


class _Beside(nn.Module):
    """Two models of one input."""

    def __init__(self, dense: nn.Module, name: str, expert: nn.Module) -> None:
        super().__init__()
        self.dense, self.experts = dense, nn.ModuleDict({name: expert})

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        found: torch.Tensor = self.dense(x)
        for expert in self.experts.values():
            found = found + expert(x)
        return found


def laid_out(layout: str, net: nn.Module, other: nn.Module) -> nn.Module:
    rank, world = dist.get_rank(), dist.get_world_size()
    if layout == "ddp":
        return DistributedDataParallel(net)
    if layout == "fsdp":
        fully_shard(net, mesh=init_device_mesh("cpu", (world,)))
        return net
    square = init_device_mesh("cpu", (2, world // 2), mesh_dim_names=("a", "b"))
    if layout == "hsdp":
        fully_shard(net, mesh=square)
        return net
    if layout == "pp-fsdp":
        stage = nn.ModuleDict({f"stage{rank // (world // 2)}": net})
        fully_shard(net, mesh=square["b"])
        return _Stage(stage)
    number = rank // (world // 2)
    fully_shard(net, mesh=init_device_mesh("cpu", (world,)))
    fully_shard(other, mesh=square["b"])
    return _Beside(net, str(number), other)


class _Stage(nn.Module):
    def __init__(self, stages: nn.ModuleDict) -> None:
        super().__init__()
        self.stages = stages

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for stage in self.stages.values():
            x = stage(x)
        return x
