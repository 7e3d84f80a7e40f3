"""Two ranks that write, or resume from, one small checkpoint of each kind: write|resume FOLDER.

`write` is for the day on which the format changes: run it with the code before the change and keep
what it wrote in tests/checkpoint/saved. `resume` says as JSON what is not as `write` left it.
"""

import json
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

import holdfast
from holdfast.checkpoint import load_ahead

STEP = 3


def made(kind: str) -> holdfast.State:
    """Values that depend on nothing but the shapes."""
    model = torch.nn.Sequential(torch.nn.Linear(5, 3), torch.nn.BatchNorm1d(3))
    if kind == "sharded":
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.25)
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    return holdfast.State(
        model=model, optimizer=optimizer, best=0.5, note=f"{dist.get_rank()}", per_rank=("note",)
    )


def tensors(state: holdfast.State) -> dict[str, torch.Tensor]:
    assert state.model is not None
    assert state.optimizer is not None
    found = {name: value for name, value in state.model.state_dict().items() if value.dim()}
    for number, values in state.optimizer.state_dict()["state"].items():
        found |= {f"{number}.{name}": value for name, value in values.items() if value.dim()}
    return found


def fill(state: holdfast.State) -> None:
    for number, value in enumerate(tensors(state).values()):
        local = value.to_local() if hasattr(value, "to_local") else value
        with torch.no_grad():
            local.copy_(expected(state, local, number))


def expected(state: holdfast.State, local: torch.Tensor, number: int) -> torch.Tensor:
    rank = dist.get_rank() if state.kind == "sharded" else 0
    steps = torch.arange(local.numel(), dtype=torch.float32).reshape(local.shape)
    return steps / 7 + number + 100 * rank


def write(folder: Path, kind: str) -> None:
    state = made(kind)
    fill(state)
    state.step, state.epoch, state.extras["best"] = STEP, 1, 0.75
    with holdfast.Checkpoint(folder / kind, state, config={"lr": 0.25}) as ckpt:
        assert ckpt.save()


class Noted(load_ahead.WantedBytes):
    """How many tensors came while they were verified."""

    count = 0

    def complete(self) -> set[int]:
        Noted.count = len(found := super().complete())
        return found


def wrong(folder: Path, kind: str) -> list[str]:
    state = made(kind)
    state.extras["note"] = "fresh"
    load_ahead.WantedBytes, Noted.count = Noted, 0  # type: ignore[misc]
    with holdfast.Checkpoint(folder / kind, state, config={"lr": 0.25}) as ckpt:
        found = [f"step {ckpt.resume()}"]
    found += [f"epoch {state.epoch}", f"best {state.extras['best']}", state.extras["note"]]
    # Two averages and a step of each of four parameters, and the random numbers.
    found += [] if Noted.count >= 12 else [f"{Noted.count} ahead"]
    if found == [f"step {STEP}", "epoch 1", "best 0.75", f"{dist.get_rank()}"]:
        found = []
    for number, (name, value) in enumerate(tensors(state).items()):
        local = value.to_local() if hasattr(value, "to_local") else value
        if not torch.equal(local, expected(state, local, number)):
            found.append(f"{name} is {local.flatten().tolist()}")
    return found


def main(what: str, folder: Path) -> None:
    dist.init_process_group("gloo")
    if what == "write":
        for kind in ("plain", "sharded"):
            write(folder, kind)
    else:
        print(json.dumps({kind: wrong(folder, kind) for kind in ("plain", "sharded")}))
    dist.barrier()
    dist.destroy_process_group()


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
