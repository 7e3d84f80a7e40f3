"""A Gloo rank that does what its standard input says, one line at a time, and says when done.

argv: rank, world size, folder. Its recorder is served on FOLDER/RANK.sock.
"""

import ctypes
import os
import sys

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import FileStore, _WorkerServer

rank, world, folder = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
server = _WorkerServer(f"{folder}/{rank}.sock")
store = FileStore(f"{folder}/store", world)
dist.init_process_group("gloo", store=store, rank=rank, world_size=world)
second = dist.new_group(list(range(world)))


def reduce_some(size: str) -> None:
    dist.all_reduce(torch.ones(int(size)))


def reduce_in_second_group(size: str) -> None:
    dist.all_reduce(torch.ones(int(size)), group=second)


def send_to(peer: str) -> None:
    dist.send(torch.ones(1), int(peer))


def receive_from(peer: str) -> None:
    dist.recv(torch.ones(1), int(peer))


def hold_the_gil(fifo: str) -> None:
    descriptor = os.open(fifo, os.O_RDONLY)
    ctypes.PyDLL(None).read(descriptor, ctypes.create_string_buffer(1), 1)  # PyDLL keeps the GIL
    os.close(descriptor)


COMMANDS = {
    "all_reduce": reduce_some,
    "second": reduce_in_second_group,
    "send": send_to,
    "recv": receive_from,
    "gil": hold_the_gil,
}

print("ready", flush=True)
for line in sys.stdin:
    name, argument = line.split()
    try:
        COMMANDS[name](argument)
        print("done", flush=True)
    except RuntimeError as problem:
        print(f"failed: {problem}".replace("\n", " "), flush=True)
os._exit(0)
