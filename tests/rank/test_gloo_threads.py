"""Pairs of real ranks whose last act is a collective, on one processor that Gloo's threads hardly
get: without the wait one exit in ten is a SIGABRT. Forked from one process that imported torch."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

PAIRS = """
import atexit, collections, os, socket, sys
import torch
import torch.distributed as dist

def pairs(count):
    ends = collections.Counter()
    for _ in range(count):
        with socket.create_server(("127.0.0.1", 0)) as free:
            port = free.getsockname()[1]
        ranks = []
        for rank in (0, 1):
            ranks.append(os.fork())
            if ranks[-1] == 0:
                return rank, port
        ends.update(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) for pid in ranks)
    print(*(f"{code}:{times}" for code, times in ends.items()))
    sys.exit()

rank, port = pairs(int(sys.argv[2]))
if sys.argv[1] == "wait":
    from holdfast.rank.gloo_threads import wait_until_idle
    atexit.register(wait_until_idle)
os.sched_setaffinity(0, {min(os.sched_getaffinity(0))})
torch.set_num_threads(1)
store = dist.TCPStore("127.0.0.1", port, 2, is_master=rank == 0)
dist.init_process_group("gloo", store=store, rank=rank, world_size=2)
for task in os.listdir("/proc/self/task"):
    with open(f"/proc/self/task/{task}/comm") as name:
        if int(task) != os.getpid():
            os.sched_setscheduler(int(task), os.SCHED_IDLE, os.sched_param(0))
dist.all_reduce(torch.ones(4))
"""


def exits(*, wait: bool, pairs: int) -> dict[int, int]:
    """Exit code -> how often."""
    command = [sys.executable, "-c", PAIRS, "wait" if wait else "leave", str(pairs)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300, check=True)
    found = (entry.split(":") for entry in done.stdout.split())
    return {int(code): int(times) for code, times in found}


def test_a_rank_whose_last_act_was_a_collective_ends_well() -> None:
    assert exits(wait=True, pairs=8) == {0: 16}


@pytest.mark.long
def test_without_the_wait_torch_aborts_now_and_then() -> None:
    """Where this fails, torch no longer needs the wait."""
    assert -signal.SIGABRT in exits(wait=False, pairs=60)
    assert exits(wait=True, pairs=60) == {0: 120}
