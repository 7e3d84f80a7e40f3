"""A small Gloo job that breaks itself in one of many ways and leaves its remains.

wreck.py FAULT RANK      that rank breaks at the fourth step; the others wait 4 s for it at most

What the flight recorder holds goes to $WRECK_RECORDERS/fr_RANK when a rank ends with an error.
"""

from __future__ import annotations

import ctypes
import datetime as dt
import os
import resource
import signal
import socket
import sys
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist

arguments = [word for word in sys.argv[1:] if not word.startswith("--")]  # deepspeed adds its own
FAULT, CULPRIT = arguments[0], int(arguments[1])
PATIENCE = dt.timedelta(seconds=4)
AT = 3


class Images(torch.utils.data.Dataset[int]):
    def __len__(self) -> int:
        return 8

    def __getitem__(self, index: int) -> int:
        if FAULT == "loader-killed":
            os.kill(os.getpid(), signal.SIGKILL)
        return index


def open_everything() -> None:
    resource.setrlimit(resource.RLIMIT_NOFILE, (64, 64))
    held = [socket.socket() for _ in range(100)]
    print(len(held))


def fill_the_disk() -> None:
    with open("/dev/full", "wb", buffering=0) as file:
        file.write(b"weights")


def load_a_cut_checkpoint() -> None:
    path = f"/tmp/holdfast-wreck-{os.getpid()}.pt"
    torch.save({"weight": torch.zeros(4096)}, path)
    os.truncate(path, os.path.getsize(path) // 2)
    try:
        torch.load(path)
    finally:
        os.unlink(path)


def read_images() -> None:
    list(torch.utils.data.DataLoader(Images(), num_workers=1))


def raise_an_error() -> None:
    raise ValueError("the batch is empty")


BREAKS: dict[str, Callable[[], Any]] = {
    "kill": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "exit": lambda: os._exit(0),
    "segfault": lambda: ctypes.string_at(0),
    "stop": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "sleep": lambda: time.sleep(10_000),
    "size": lambda: dist.all_reduce(torch.ones(7)),
    "skip": lambda: dist.broadcast(torch.ones(3), src=CULPRIT),
    "exception": raise_an_error,
    "fd-limit": open_everything,
    "disk-full": fill_the_disk,
    "cut-checkpoint": load_a_cut_checkpoint,
    "loader-killed": read_images,
}


def train() -> None:
    rank = dist.get_rank()
    if FAULT == "unused":
        train_without_a_layer()
    for step in range(8):
        if rank == CULPRIT and step == AT and FAULT in BREAKS:
            BREAKS[FAULT]()
        dist.all_reduce(torch.ones(100))
        if rank == 0:
            print(f"step {step}", flush=True)


class Lopsided(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.used, self.unused = torch.nn.Linear(4, 4), torch.nn.Linear(4, 4)

    def forward(self, inputs: torch.Tensor) -> torch.Tensor:
        used: torch.Tensor = self.used(inputs)
        return used


def train_without_a_layer() -> None:
    model = torch.nn.parallel.DistributedDataParallel(Lopsided())
    for _ in range(2):
        model(torch.ones(2, 4)).sum().backward()


def main() -> None:
    dist.init_process_group("gloo", timeout=PATIENCE)
    try:
        train()
    except Exception:
        keep_the_recorder(dist.get_rank())
        raise
    dist.destroy_process_group()


def keep_the_recorder(rank: int) -> None:
    folder = os.environ.get("WRECK_RECORDERS")
    if folder:
        # The launcher may end this rank at any moment: a dump is there as a whole or not at all.
        dump = torch._C._distributed_c10d._dump_fr_trace  # type: ignore[attr-defined]
        with open(f"{folder}/part-{rank}", "wb") as file:
            file.write(dump(True, False))  # without stacks: they are long, and full of paths
        os.rename(file.name, f"{folder}/fr_{rank}")


if __name__ == "__main__":
    main()
