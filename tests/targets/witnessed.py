"""Trainings of many shapes in one process, for the witness of a drill: each prints which steps it
took, and what must be in their records."""

import copy
import json
import sys
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.nn.parallel import DistributedDataParallel
from torch.utils.checkpoint import checkpoint

BATCH: Any = torch.randn(8, 4, generator=torch.Generator().manual_seed(7))
OTHER: Any = torch.randn(8, 4, generator=torch.Generator().manual_seed(8))
taken: list[int] = []


def took(name: str, count: int, **expected: object) -> None:
    before = sum(taken)
    print(json.dumps({"name": name, "from": before + 1, "to": before + count, **expected}))
    taken.append(count)


def net() -> Any:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(4, 4), nn.ReLU(), nn.Linear(4, 1))


def accumulation() -> None:
    """Two micro-batches a step, an evaluation between, another module beside. As before a load,
    torch.distributed.checkpoint first takes a step with zero gradients, which is none."""
    model: Any = DistributedDataParallel(net())
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    get_state_dict(model, optimizer)
    for _ in range(3):
        losses = []
        for part in BATCH.split(4):
            loss = nn.MSELoss()(model(part), torch.zeros(4, 1))
            loss.backward()
            losses.append(loss.item())
        optimizer.step()
        optimizer.zero_grad()
        model.eval()(OTHER)
        with torch.no_grad():
            model.train()(OTHER)
    took("accumulation", 3, samples=8, loss=sum(losses))


def keywords() -> None:
    class Named(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.net = net()

        def forward(self, *, batch: dict[str, list[torch.Tensor]], scale: float) -> Any:
            return self.net(batch["x"][0]).mean() * scale

    model = Named()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(2):
        model(batch={"x": [BATCH]}, scale=2.0).backward()
        optimizer.step()
    copy.deepcopy(model)
    took("keywords", 2, samples=8)


def one_optimizer_for_each_parameter() -> None:
    model = net()
    for parameter in model.parameters():
        optimizer = torch.optim.SGD([parameter], lr=0.1)

        def step(_: object, optimizer: torch.optim.SGD = optimizer) -> None:
            optimizer.step()
            optimizer.zero_grad()

        parameter.register_post_accumulate_grad_hook(step)
    for _ in range(3):
        model(BATCH).mean().backward()
    took("in backward", 3, samples=8)


def two_that_take_turns() -> None:
    made, judged = net(), nn.Linear(1, 1)
    first = torch.optim.SGD(made.parameters(), lr=0.1)
    second = torch.optim.SGD(judged.parameters(), lr=0.1)
    for _ in range(3):
        judged(made(BATCH)).mean().backward()
        first.step()
        second.step()
    took("turns", 3, samples=8)


def skipped_by_the_scaler() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    scaler = torch.amp.GradScaler("cpu", init_scale=4.0)
    for number in range(4):
        loss = model(BATCH).mean() * (1.0 if number % 2 else float("inf"))
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        optimizer.zero_grad()
    took("scaler", 2)


def computed_again() -> None:
    """Activation checkpoints: what a module gets in the backward pass is no new sample."""

    class Whole(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 1)

        def forward(self, batch: torch.Tensor) -> Any:
            hidden = checkpoint(self.second, self.first(batch), use_reentrant=True)
            return checkpoint(self.third, hidden, use_reentrant=False)

    model = Whole()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(BATCH).mean().backward()
        optimizer.step()
    took("computed again", 2, samples=8)


def compiled() -> None:
    model: Any = torch.compile(net(), backend="eager", fullgraph=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    for _ in range(2):
        model(BATCH).mean().backward()
        optimizer.step()
    took("compiled", 2, samples=8)


def sharded() -> None:
    model = net()
    fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    for _ in range(2):
        model(BATCH).mean().backward()
        optimizer.step()
    took("sharded", 2, samples=8)


def not_finite() -> None:
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    (model(BATCH).mean() * float("nan")).backward()
    optimizer.step()
    took("not finite", 1, samples=8)


if __name__ == "__main__":
    dist.init_process_group("gloo")
    parts = (accumulation, keywords, one_optimizer_for_each_parameter, two_that_take_turns,
             skipped_by_the_scaler, computed_again, sharded, not_finite)  # fmt: skip
    for part in (*parts, compiled) if "compiled" in sys.argv else parts:
        part()
    dist.destroy_process_group()
