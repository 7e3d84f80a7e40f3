"""Healthy jobs in which training is a small part of the time: quiet_reinforce.py WHICH SECONDS

ppo    40 quick steps, then a rollout of SECONDS that differs from rank to rank, three times
grpo   rank 0 asks a generation server and gets one answer after SECONDS; the others wait in
       broadcast_object_list; twice, the first time before the first step
"""

import sys
import time

import torch
import torch.distributed as dist
from quiet_waits import ask_a_server  # type: ignore[import-not-found]
from torch.nn.parallel import DistributedDataParallel

WHICH, SECONDS = sys.argv[1], float(sys.argv[2])


def rollout() -> None:
    """Worth the same to every rank, but one is done a little earlier than the other."""
    time.sleep(SECONDS * (1 - 0.1 * dist.get_rank()))


def generate() -> None:
    text = [""]
    if dist.get_rank() == 0:
        text[0] = ask_a_server(SECONDS).decode()
    dist.broadcast_object_list(text, src=0)
    assert text[0] == "generated"


def main() -> None:
    torch.set_num_threads(1)
    dist.init_process_group("gloo")
    torch.manual_seed(0)
    model = DistributedDataParallel(torch.nn.Linear(64, 1))
    optimizer = torch.optim.Adam(model.parameters())
    for _ in range(3 if WHICH == "ppo" else 2):
        rollout() if WHICH == "ppo" else generate()
        for _ in range(40):
            time.sleep(0.01)
            optimizer.zero_grad()
            model(torch.randn(8, 64)).pow(2).mean().backward()
            optimizer.step()
    dist.barrier()
    dist.destroy_process_group()


main()
