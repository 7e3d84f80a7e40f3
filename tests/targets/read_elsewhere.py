"""Two ranks that save one model plain (DDP) and sharded (FSDP2), and read each into the other.

FOLDER STORE RANK; says what differed as JSON. What both hold, whole, is in FOLDER/whole.pt.
"""

import json
import sys
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.checkpoint.state_dict import (
    StateDictOptions,
    get_model_state_dict,
    get_optimizer_state_dict,
)
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

import holdfast
from holdfast.checkpoint.exchange.bring_in import bring_in

FOLDER, STORE, RANK = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])


class Tied(nn.Module):
    """Odd sides, a buffer, and one weight under two names."""

    def __init__(self) -> None:
        super().__init__()
        self.embed = nn.Embedding(11, 6)
        self.inner = nn.Linear(6, 6)
        self.seen: torch.Tensor = nn.Buffer(torch.zeros(3))
        self.head = nn.Linear(6, 11, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.seen += 1
        return self.head(self.inner(self.embed(x)))  # type: ignore[no-any-return]


def make(seed: int, *, sharded: bool) -> tuple[nn.Module, torch.optim.Optimizer]:
    torch.manual_seed(seed)
    model: nn.Module = Tied()
    if sharded:
        fully_shard(model, mesh=init_device_mesh("cpu", (2,)))
    else:
        model = nn.parallel.DistributedDataParallel(model)
    return model, torch.optim.AdamW(model.parameters(), lr=0.1)


def train(model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    for step in range(2):
        model(torch.tensor([step, 3, 4])).sum().backward()
        optimizer.step()
        optimizer.zero_grad()


def save(folder: Path, model: nn.Module, optimizer: torch.optim.Optimizer) -> None:
    state = holdfast.State(model=model, optimizer=optimizer, best=0.25)
    with holdfast.Checkpoint(folder, state, every="2h", config={"lr": 0.1}) as ckpt:
        ckpt.resume()
        state.step, state.epoch = 7, 2
        assert ckpt.save()


def whole(model: nn.Module, optimizer: torch.optim.Optimizer) -> dict[str, Any]:
    options = StateDictOptions(full_state_dict=True)
    state = {
        "model": get_model_state_dict(model, options=options),
        "optimizer": get_optimizer_state_dict(model, optimizer, options=options)["state"],
    }
    return {"/".join(map(str, path)): value.clone() for path, value in leaves(state)}


def leaves(value: Any, path: tuple[str, ...] = ()) -> list[tuple[tuple[str, ...], torch.Tensor]]:
    if isinstance(value, torch.Tensor):
        return [(path, value)]
    return [leaf for key, each in value.items() for leaf in leaves(each, (*path, key))]


def differing(expected: dict[str, Any], found: dict[str, Any]) -> list[str]:
    return [
        name
        for name in expected.keys() | found.keys()
        if name not in expected or name not in found or not torch.equal(expected[name], found[name])
    ]


def resume_imported(expected: dict[str, Any]) -> list[Any]:
    """What another tool saved, continued by a sharded job."""
    weights = {n.removeprefix("model/"): t for n, t in expected.items() if n.startswith("model/")}
    if RANK == 0:
        torch.save({"model": weights, "step": 7}, FOLDER / "others.pt")
        bring_in(str(FOLDER / "others.pt"), str(FOLDER / "imported"))
    dist.barrier()
    model, optimizer = make(1, sharded=True)
    state = holdfast.State(model=model, optimizer=optimizer)
    with holdfast.Checkpoint(FOLDER / "imported", state, every="2h", config={"lr": 1}) as ckpt:
        ckpt.resume()
    full = get_model_state_dict(model, options=StateDictOptions(full_state_dict=True))
    return [state.step, differing(weights, full)]


def main() -> None:
    dist.init_process_group("gloo", init_method=f"file://{STORE}", rank=RANK, world_size=2)
    expected, found = {}, {}
    for kind in ("plain", "sharded"):
        model, optimizer = make(0, sharded=kind == "sharded")
        train(model, optimizer)
        save(FOLDER / kind, model, optimizer)
        expected[kind] = whole(model, optimizer)
    for kind in ("plain", "sharded"):
        for into in ("plain", "sharded"):
            model, optimizer = make(1, sharded=into == "sharded")
            with holdfast.load(FOLDER / kind, model=model, optimizer=optimizer) as saved:
                found[f"{kind} into {into}"] = [
                    saved.step,
                    differing(expected[kind], whole(model, optimizer)),
                ]
    found["imported into sharded"] = resume_imported(expected["plain"])
    if RANK == 0:
        torch.save(expected, FOLDER / "whole.pt")
        print(json.dumps(found))
    dist.barrier()
    dist.destroy_process_group()


main()
