"""Four ranks that save and restore sharded states: FOLDER STORE RANK; says what it found as JSON.

Smaller worlds are the first ranks of the four, with a mesh and a board of their own: one start of
torch serves them all.
"""

import functools
import json
import os
import sys
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from sharded_parallels import everything  # type: ignore[import-not-found]
from sharded_runs import Cut, Run, by_both, by_fsdp, differing  # type: ignore[import-not-found]
from torch._C._distributed_c10d import FileStore, PrefixStore
from torch.distributed.device_mesh import DeviceMesh

import holdfast
from holdfast.checkpoint.answering_store import AnsweringStore
from holdfast.checkpoint.message_board import MessageBoard
from holdfast.checkpoint.sharded import ShardedState
from holdfast.checkpoint.staging import StagingBuffer
from holdfast.errors import Error

FOLDER, STORE, RANK = Path(sys.argv[1]), sys.argv[2], int(sys.argv[3])
WORLD = 4


def write(run: Run, sharded: ShardedState, folder: Path, token: str) -> int:
    """As the writer does; returns how many bytes of tensors this rank has written."""
    share = sharded.collect(token)
    captured = run.state.capture(RANK, sharded=share.node, structure=share.structure)
    buffer = StagingBuffer()
    staged = buffer.stage([*captured.tensors, *share.tensors], captured.text)
    folder.mkdir(exist_ok=True)
    for piece in staged.pieces(RANK, buffer.fd):
        (folder / piece.name).write_bytes(os.pread(piece.fd, piece.size, piece.offset))
    buffer.close()
    return sum(named.size for named in share.tensors)


class World:
    """The first so many of the four ranks."""

    def __init__(self, name: str, shape: tuple[int, ...], cut: Cut) -> None:
        size = torch.Size(shape).numel()
        names = ("dp",) if len(shape) == 1 else ("dp", "tp")
        self.mesh = DeviceMesh("cpu", torch.arange(size).reshape(shape), mesh_dim_names=names)
        self.group = dist.new_group(list(range(size)))
        self.cut, self.size, self.inside = cut, size, size > RANK
        store = AnsweringStore(PrefixStore(name, FileStore(f"{STORE}-{name}", size)))
        self.board = MessageBoard(store, rank=RANK, world_size=size)

    def run(self, seed: int) -> tuple[Run, ShardedState]:
        run = Run(self.mesh, self.cut, seed)
        return run, ShardedState(run.state, self.board)


def through(worlds: list[World], folder: Path) -> dict[str, Any]:
    """Save in each world, restore in the next; what differs after each step."""
    found: dict[str, Any] = {"differ": [], "bytes": []}
    before, saved_world = None, 0
    for number, world in enumerate(worlds):
        if world.inside:
            run, sharded = world.run(seed=number)
            if before is not None:
                sharded.restore(str(folder / f"{number - 1}"), saved_world)
                run.state.restore(str(folder / f"{number - 1}"), RANK, saved_world)
                found["differ"].append(differing(before, run.whole()))
                found["best"] = run.state.extras["best"]
            run.train(2)
            before = run.whole()
            found["bytes"].append(write(run, sharded, folder / f"{number}", f"save{number}"))
        before = share_out(before, world)
        saved_world = world.size
        dist.barrier()
    return found


def share_out(whole: dict[str, torch.Tensor] | None, world: World) -> dict[str, torch.Tensor]:
    """To ranks that were not in this world and are in the next."""
    box = [whole]
    dist.broadcast_object_list(box, src=0)
    assert box[0] is not None
    return box[0]


def go_on(world: World, folder: Path) -> dict[str, Any]:
    """The same ranks again: the losses, and every rank's own statistics, as without a break."""
    if not world.inside:
        return {}
    run, sharded = world.run(seed=1)
    run.train(3)
    write(run, sharded, folder, "go-on")
    expected = run.train(3)
    again, sharded = world.run(seed=2)
    again.train(1)
    sharded.restore(str(folder), world.size)
    again.state.restore(str(folder), RANK, world.size)
    losses = again.train(3)
    mean = [each.model.statistics.running_mean for each in (run, again)]
    return {
        "losses": losses == expected,
        "statistics": torch.equal(*mean),
        "tied": again.model.leave.weight is again.model.enter.weight,
        "differ": differing(run.whole(), again.whole()),
    }


def plans(world: World) -> dict[str, Any]:
    """A new plan for changes only, also for one on a single rank; a problem on a single rank."""
    run, sharded = world.run(seed=3)
    agreement, numbers = sharded._agreement, []

    def state() -> Any:
        return next(iter(run.optimizer.state.values()))

    changes: dict[str, Callable[[], object]] = {
        "none": lambda: None,
        "none again": lambda: None,
        "optimizer's first step": lambda: run.train(1),
        "its second": lambda: run.train(1),
        "rank 2 alone": lambda: state().update(new=torch.ones(())) if RANK == 2 else None,
        "back": lambda: state().pop("new", None),
    }
    for what, change in changes.items():
        change()
        sharded.collect(what)
        numbers.append(agreement.number)
    if RANK == 1:
        state()["odd"] = torch.zeros(5)
    try:
        sharded.collect("odd")
        said = ""
    except Error as problem:
        said = f"{type(problem).__name__}: {problem.sentence}"
    return {"numbers": numbers, "said": said}


def with_checkpoint(world: World, folder: Path) -> dict[str, Any]:
    """The whole of `holdfast.Checkpoint`, twice, against a training without a break."""
    run = Run(world.mesh, world.cut, seed=5)
    losses = run.train(6)
    tries: list[OrderedDict[str, Any]] = []
    for steps in (4, 2):
        each = Run(world.mesh, world.cut, seed=5)
        with holdfast.Checkpoint(folder, each.state, every_steps=1) as ckpt:
            found: OrderedDict[str, Any] = OrderedDict(step=ckpt.resume())
            found["losses"] = []
            for _ in range(steps):
                found["losses"] += each.train(1)
                ckpt.step()
            found["safe"] = ckpt.save()
        tries.append(found)
    return {
        "steps": [found["step"] for found in tries],
        "safe": [found["safe"] for found in tries],
        "losses": tries[0]["losses"] + tries[1]["losses"] == losses,
        "differ": differing(run.whole(), each.whole()),
        "kind": each.state.kind,
        "names": sorted(path.name for path in folder.glob("step-*")),
    }


def evaluated(world: World, folder: Path) -> dict[str, Any]:
    """Evaluations leave FSDP2's parameters whole: before the State is made, between the first
    steps and before each save."""
    found = {}
    for how, reshard_after in {"true": True, "false": False, "some": 2}.items():
        cut = functools.partial(by_fsdp, reshard_after_forward=reshard_after)
        run, again = (Run(world.mesh, cut, seed=6, evaluate=True) for _ in range(2))
        losses = run.train(4, evaluate=True)
        saved = Run(world.mesh, cut, seed=6, evaluate=True)
        with holdfast.Checkpoint(folder / how, saved.state) as ckpt:
            for _ in range(3):
                saved.train(1, evaluate=True)
                ckpt.step()
            safe = ckpt.save()
        with holdfast.Checkpoint(folder / how, again.state) as ckpt:
            ckpt.resume()
        last = again.train(1, evaluate=True)
        found[how] = [safe, last == losses[3:], differing(run.whole(), again.whole())]
    return found


def main() -> None:
    torch.set_num_threads(1)
    store = FileStore(STORE, WORLD)
    dist.init_process_group("gloo", store=store, rank=RANK, world_size=WORLD)
    four, two, three = (World(f"fsdp-{n}", (n,), by_fsdp) for n in (4, 2, 3))
    both, hybrid = World("both", (2, 2), by_both), World("hybrid", (2, 2), by_fsdp)
    found = {
        "same": go_on(two, FOLDER / "same"),
        "same both": go_on(both, FOLDER / "both"),
        "reshard": through([four, two, three, hybrid], FOLDER / "reshard"),
        "meshes": through([both, four], FOLDER / "meshes"),
        "plans": plans(four),
        "checkpoint": with_checkpoint(four, FOLDER / "checkpoint"),
        "evaluated": evaluated(four, FOLDER / "evaluated"),
        "parallels": everything(FOLDER / "parallels"),
    }
    print(json.dumps(found), flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
