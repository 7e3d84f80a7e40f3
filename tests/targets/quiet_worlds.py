"""Healthy jobs of four ranks that form more or fewer groups than one: quiet_worlds.py WHICH SECONDS

Every world has its own store and model, as in sweeps, ensembles, actors with learners.
"""

import os
import sys
import tempfile
import time

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, TCPStore
from torch.nn.parallel import DistributedDataParallel

WHICH, SECONDS = sys.argv[1], float(sys.argv[2])
RANK = int(os.environ["RANK"])
PORT = int(os.environ["MASTER_PORT"])
ATTEMPT = os.environ["TORCHELASTIC_RUN_ID"], os.environ["TORCHELASTIC_RESTART_COUNT"]


def a_file(name: str) -> str:
    return os.path.join(tempfile.gettempdir(), "-".join(("quiet-worlds", *ATTEMPT, name)))


def by_port(world: int, rank: int, size: int) -> None:
    store = TCPStore("127.0.0.1", PORT + 1 + world, size, is_master=rank == 0)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


def by_file(name: str, rank: int, size: int) -> None:
    store = FileStore(a_file(name), size)
    dist.init_process_group("gloo", store=store, rank=rank, world_size=size)


def train(seconds: float, width: int, pause: float = 0.02) -> None:
    """All ranks of this world, until its first one says that the time is over."""
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(width, width))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    end = time.monotonic() + seconds
    while not over(end):
        time.sleep(pause)
        optimizer.zero_grad()
        model(torch.randn(4, width)).pow(2).mean().backward()
        optimizer.step()


def over(end: float) -> bool:
    late = torch.tensor([float(time.monotonic() > end)])
    dist.broadcast(late, 0)
    return bool(late.item())


def pairs() -> None:
    """Two models; one pair is done in a third of the time, the other takes slow steps."""
    if RANK < 2:
        by_file("pair", RANK, 2)
        train(SECONDS / 3, 8)
    else:
        by_port(1, RANK - 2, 2)
        train(SECONDS, 64, pause=0.3)


def ones() -> None:
    """A sweep: four worlds of one; each ends when it ends."""
    by_file(f"of-{RANK}", 0, 1)
    train(SECONDS * (1 + RANK) / 4, 8 * (1 + RANK))


def coordinator() -> None:
    """Rank 0 has no group and sleeps; the others train, and validate without a step."""
    if RANK == 0:
        time.sleep(SECONDS)
        return
    by_port(1, RANK - 1, 3)
    train(SECONDS / 5, 16)
    end = time.monotonic() + SECONDS * 3 / 5
    while not over(end):
        time.sleep(0.05)
    train(SECONDS / 10, 16)


def actors() -> None:
    """Ranks 0-1 learn; 2-3, one world each, take a while to make what they learn from."""
    if RANK >= 2:
        by_file(f"actor-{RANK}", 0, 1)
        for turn in range(3):
            end = time.monotonic() + SECONDS / 4
            while time.monotonic() < end:
                torch.randn(64, 64) @ torch.randn(64, 64)
            with open(a_file(f"rollout-{turn}-{RANK}"), "w") as file:
                file.write("done")
        return
    by_port(1, RANK, 2)
    for turn in range(3):
        if RANK == 0:
            while not all(os.path.exists(a_file(f"rollout-{turn}-{actor}")) for actor in (2, 3)):
                time.sleep(0.1)
        dist.broadcast(torch.zeros(1), 0)
        train(SECONDS / 20, 16)


def again() -> None:
    """The group is destroyed and made again, as between the phases of a job, and in tests."""
    for turn in range(3):
        if turn % 2:
            by_port(turn, RANK, 4)
        else:
            by_file("again-0", RANK, 4) if turn == 0 else by_file("again-2", 3 - RANK, 4)
        train(SECONDS / 3, 16 + turn)
        dist.barrier()
        dist.destroy_process_group()


{f.__name__: f for f in (pairs, ones, coordinator, actors, again)}[WHICH]()
