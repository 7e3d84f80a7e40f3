"""A job of pipeline, data and tensor parallel groups over NCCL, which a rank breaks in step 4.

Started by tools.mesh_wrecks, one process a rank. `FAULT` is 'KIND:RANK[,KIND:RANK]'.
"""

from __future__ import annotations

import datetime as dt
import os
import signal
import time

import torch
import torch.distributed as dist

Groups = dict[str, dist.ProcessGroup]
STEP = 4
MICROBATCHES = 2


def faults_of(rank: int) -> list[str]:
    pairs = (pair.split(":") for pair in os.environ["FAULT"].split(",") if pair)
    return [kind for kind, number in pairs if int(number) == rank]


def misbehave(kinds: list[str]) -> None:
    """What a rank does between two collectives."""
    if "sleep" in kinds:
        time.sleep(3600)
    if "kill" in kinds:
        os.kill(os.getpid(), signal.SIGKILL)
    if "stop" in kinds:
        os.kill(os.getpid(), signal.SIGSTOP)
    if "raise" in kinds:
        raise ValueError("the batch is empty")
    if "exit" in kinds:
        os._exit(0)


def tensor_parallel(groups: Groups, x: torch.Tensor, kinds: list[str]) -> None:
    if "skip" not in kinds:
        dist.all_reduce(x, group=groups["tp"])
    if "size" in kinds:
        x = x[: x.numel() // 2].clone()
    dist.all_reduce(x, group=groups["tp"])


def step(groups: Groups, x: torch.Tensor, kinds: list[str]) -> None:
    """Activations go down the pipeline, gradients come back, then replicas agree."""
    stages = dist.get_process_group_ranks(groups["pp"])
    place, line = stages.index(dist.get_rank()), groups["pp"]
    for _ in range(MICROBATCHES):
        if place > 0:
            dist.recv(x, stages[place - 1], group=line)
        misbehave(kinds)
        tensor_parallel(groups, x, kinds)
        if place < len(stages) - 1:
            dist.send(x, stages[place + 1], group=line)
    for _ in range(MICROBATCHES):
        if place < len(stages) - 1:
            dist.recv(x, stages[place + 1], group=line)
        dist.all_reduce(x, group=groups["tp"])
        if place > 0:
            dist.send(x, stages[place - 1], group=line)
    dist.all_reduce(x, group=groups["dp"])
    norm = x[:1].clone()
    dist.all_reduce(norm)
    torch.cuda.synchronize()


def groups_of(shape: tuple[int, ...], limit: dt.timedelta) -> Groups:
    """A device mesh would do it, with torch's own ten minutes as the limit of every group."""
    numbers = torch.arange(dist.get_world_size()).reshape(shape)
    mine: Groups = {}
    for axis, name in enumerate(("pp", "dp", "tp")):
        for ranks in numbers.movedim(axis, -1).reshape(-1, shape[axis]).tolist():
            group = dist.new_group(ranks, timeout=limit, group_desc=f"mesh_{name}")
            if dist.get_rank() in ranks:
                mine[name] = group
    return mine


def main() -> None:
    shape = tuple(int(n) for n in os.environ["SHAPE"].split("x"))
    limit = dt.timedelta(seconds=float(os.environ["GROUP_TIMEOUT"]))
    torch.cuda.set_device(0)
    dist.init_process_group("nccl", timeout=limit, device_id=torch.device("cuda", 0))
    groups, rank = groups_of(shape, limit), dist.get_rank()
    x = torch.ones(4096, device="cuda")
    for number in range(100_000):
        step(groups, x.fill_(1.0), faults_of(rank) if number == STEP else [])
        if rank == 0 and number < STEP:
            print(f"step {number}", flush=True)


if __name__ == "__main__":
    main()
