"""Break small Gloo jobs on purpose and print, as JSON, how each rank ended.

Ranks are forked from this process, which has imported torch once: each job takes milliseconds.
"""

from __future__ import annotations

import datetime as dt
import json
import os
import signal
import socket
import tempfile
import time
from collections.abc import Callable

import torch
import torch.distributed as dist

RANKS = 3
SECOND = dt.timedelta(seconds=1)
DEADLINE = 30.0


def killed(rank: int) -> None:
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    dist.all_reduce(torch.ones(4))


def left(rank: int) -> None:
    if rank == 1:
        os._exit(0)
    dist.all_reduce(torch.ones(4))


def late(rank: int) -> None:
    if rank == 1:
        time.sleep(DEADLINE)
    dist.all_reduce(torch.ones(4))


def late_for_monitored_barrier(rank: int) -> None:
    if rank == 1:
        time.sleep(DEADLINE)
    dist.monitored_barrier(timeout=SECOND)


def late_for_wait(rank: int) -> None:
    if rank == 1:
        time.sleep(DEADLINE)
    work = dist.all_reduce(torch.ones(4), async_op=True)
    assert work is not None
    work.wait(SECOND)


def larger(rank: int) -> None:
    dist.all_reduce(torch.ones(100_000 if rank == 1 else 4))


def store_gone(rank: int) -> None:
    if rank == 0:
        os._exit(3)
    dist.distributed_c10d._get_default_store().get("never set")


FAULTS = (killed, left, late, late_for_monitored_barrier, late_for_wait, larger, store_gone)


def be_a_rank(fault: Callable[[int], None], rank: int, folder: str) -> None:
    os.dup2(os.open(f"{folder}/{rank}.stderr", os.O_CREAT | os.O_WRONLY), 2)
    try:
        fault(rank)
    except RuntimeError as problem:
        with open(f"{folder}/{rank}.json", "w") as file:
            json.dump({"kind": type(problem).__name__, "text": str(problem)}, file)
        # The others must raise their own errors before this connection closes.
        time.sleep(0.1)
        os._exit(1)
    os._exit(0)


def start(fault: Callable[[int], None], rank: int, port: int, folder: str) -> int:
    child = os.fork()
    if child == 0:
        try:
            torch.set_num_threads(1)
            os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
            patience = dt.timedelta(seconds=1 if fault is late else DEADLINE)
            dist.init_process_group("gloo", rank=rank, world_size=RANKS, timeout=patience)
            dist.all_reduce(torch.ones(4))
            be_a_rank(fault, rank, folder)
        finally:
            os._exit(9)
    return child


def how_it_ended(rank: int, status: int, folder: str) -> dict[str, object]:
    words = {"kind": "", "text": ""}
    if os.path.exists(f"{folder}/{rank}.json"):
        with open(f"{folder}/{rank}.json") as file:
            words = json.load(file)
    with open(f"{folder}/{rank}.stderr") as file:
        stderr = file.read()
    return {"code": os.waitstatus_to_exitcode(status), "stderr": stderr, **words}


def run(fault: Callable[[int], None], port: int) -> dict[int, dict[str, object]]:
    with tempfile.TemporaryDirectory() as folder:
        ranks = {rank: start(fault, rank, port, folder) for rank in range(RANKS)}
        over: dict[int, int] = {}
        until = time.monotonic() + DEADLINE
        try:
            # The late one is not waited for: it is ended below.
            while len(over) < (RANKS - 1 if "late" in fault.__name__ else RANKS):
                if time.monotonic() > until:
                    raise TimeoutError(f"{fault.__name__}: only ranks {sorted(over)} ended")
                for rank in ranks.keys() - over.keys():
                    pid, status = os.waitpid(ranks[rank], os.WNOHANG)
                    if pid:
                        over[rank] = status
                time.sleep(0.01)
        finally:
            for rank in ranks.keys() - over.keys():
                os.kill(ranks[rank], signal.SIGKILL)
                os.waitpid(ranks[rank], 0)
        return {rank: how_it_ended(rank, over[rank], folder) for rank in sorted(over)}


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    print(json.dumps({fault.__name__: run(fault, free_port()) for fault in FAULTS}))
