"""Ranks with different parameters, and more than a model in shards; for sharded_states.py."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import DeviceMesh, init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor

import holdfast
from holdfast.errors import Error

Made = tuple[nn.Module, torch.optim.Optimizer]


class Layers(nn.Module):
    """Layers by name, one after the other."""

    def __init__(self, names: list[str]) -> None:
        super().__init__()
        self.layers = nn.ModuleDict({name: nn.Linear(5, 5) for name in names})
        for layer in self.layers.values():  # every rank has its own
            layer.register_buffer("seen", torch.tensor([float(dist.get_rank())]))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        for layer in self.layers.values():
            x = torch.relu(layer(x)) + x
        return x


def make(names: list[str], meshes: dict[str, DeviceMesh], seed: int) -> Made:
    """Each layer in the mesh of its name, or plain where there is none."""
    torch.manual_seed(seed)
    model = Layers(names)
    for name in names:
        if name in meshes:
            fully_shard(model.layers[name], mesh=meshes[name])
    return model, torch.optim.AdamW(model.parameters(), lr=0.01)


def train(made: Made, steps: int, seed: int) -> None:
    model, optimizer = made
    torch.manual_seed(seed)
    for _ in range(steps):
        model(torch.randn(4, 5)).square().mean().backward()
        optimizer.step()
        optimizer.zero_grad()


def values(made: Made) -> dict[str, torch.Tensor]:
    """Whole tensors of what this rank has a part of."""
    model, optimizer = made
    found = dict(model.named_parameters())
    for name, parameter in model.named_parameters():
        state = optimizer.state[parameter]
        found |= {f"{name}.{key}": value for key, value in state.items()}
    return {
        name: (value.full_tensor() if isinstance(value, DTensor) else value).detach().clone()
        for name, value in found.items()
    }


def same(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(one[n], other[n]) for n in one)


def save(made: Made, folder: Path, **more: Any) -> str:
    """'True', or why not."""
    state = holdfast.State(model=made[0], optimizer=made[1], **more)
    try:
        with holdfast.Checkpoint(folder, state) as ckpt:
            return str(ckpt.save())
    except Error as problem:
        return f"{type(problem).__name__}: {problem.sentence}"


def resume(made: Made, folder: Path, **more: Any) -> holdfast.State:
    state = holdfast.State(model=made[0], optimizer=made[1], **more)
    with holdfast.Checkpoint(folder, state) as ckpt:
        ckpt.resume(accept={"world-size"})
    return state


def again(build: Callable[[int], Made], folder: Path, **more: Any) -> list[Any]:
    """Saved, resumed by a fresh one, and both trained on."""
    first, second = build(1), build(2)
    train(first, 2, seed=7)
    safe = save(first, folder, **more)
    if safe != "True":
        return [safe]
    resume(second, folder, **more)
    found = [safe, same(values(first), values(second))]
    for made in (first, second):
        train(made, 2, seed=8)
    return [*found, same(values(first), values(second))]


def everything(folder: Path) -> dict[str, Any]:
    rank = dist.get_rank()
    square = init_device_mesh("cpu", (2, 2), mesh_dim_names=("stage", "shard"))
    row = init_device_mesh("cpu", (4,))
    stage, mine, across = rank // 2, square["shard"], square["stage"]

    def pipeline(seed: int) -> Made:
        names = [f"layer{2 * stage}", f"layer{2 * stage + 1}"]
        return make(names, dict.fromkeys(names, mine), seed)

    def local_names(seed: int) -> Made:
        return make(["0", "1"], {"0": mine, "1": mine}, seed + 10 * stage)

    def experts(seed: int) -> Made:
        own = f"expert{rank % 2}"
        return make(["dense", own], {"dense": row, own: across}, seed)

    def plain_experts(seed: int) -> Made:
        made = make(["dense", "expert"], {"dense": row}, seed)
        with torch.no_grad():
            made[0].get_parameter("layers.expert.weight").mul_(rank - 1.5)
        return made

    found = {
        "pipeline": again(pipeline, folder / "pipeline"),
        "local names": again(local_names, folder / "local"),
        "local names per rank": again(
            local_names, folder / "per-rank", per_rank=("model", "optimizer")
        ),
        "experts": again(experts, folder / "experts"),
        "plain experts": again(plain_experts, folder / "plain"),
    }
    return found | {
        "merged": merged(pipeline, row, folder / "pipeline"),
        "averages": averages(row, folder / "averages"),
        "unnamed": unnamed(row, folder / "unnamed"),
    }


def merged(pipeline: Callable[[int], Made], row: DeviceMesh, folder: Path) -> bool:
    """What the stages had, in one model over all ranks."""
    stages = pipeline(3)
    resume(stages, folder)
    names = [f"layer{i}" for i in range(4)]
    whole = make(names, dict.fromkeys(names, row), 4)
    resume(whole, folder)
    expected = values(stages)
    return all(torch.equal(values(whole)[name], tensor) for name, tensor in expected.items())


def averages(row: DeviceMesh, folder: Path) -> list[bool]:
    """Beside the model an average of it as a module, and one as a dict; a second optimizer."""

    def build(seed: int) -> tuple[Made, dict[str, Any]]:
        made = make(["one", "two"], {"one": row, "two": row}, seed)
        ema, _ = make(["one", "two"], {"one": row, "two": row}, seed + 100)
        shadow = {name: value.detach() * 2 for name, value in made[0].named_parameters()}
        second = torch.optim.SGD(ema.parameters(), lr=0.1, momentum=0.9)
        return made, {"ema": ema, "shadow": {"decay": 0.5 + seed, "of": shadow}, "second": second}

    (first, more), (later, other) = build(1), build(2)
    train(first, 2, seed=5)
    train((more["ema"], more["second"]), 2, seed=6)
    safe = save(first, folder, **more)
    state = resume(later, folder, **other)
    shadows = [more["shadow"], state.extras["shadow"]]
    whole = [{n: value.full_tensor() for n, value in each["of"].items()} for each in shadows]
    one, two = (values((each["ema"], each["second"])) for each in (more, other))
    return [
        safe == "True",
        same(values(first), values(later)),
        same(one, two),
        same(*whole) and shadows[1]["decay"] == 1.5,
    ]


def unnamed(row: DeviceMesh, folder: Path) -> str:
    model, _ = make(["one"], {"one": row}, 1)
    outside = nn.Parameter(torch.ones(3))
    return save((model, torch.optim.SGD([*model.parameters(), outside], lr=0.1)), folder)
