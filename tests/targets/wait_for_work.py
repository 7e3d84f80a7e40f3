"""Rank 0 waits for a collective that rank 1 never enters; each exception is told by its type."""

import os
import sys
from datetime import timedelta

import torch
import torch.distributed as dist

import holdfast
from holdfast.rank.wait_for import Work


def tell(what: str, work: Work | None, seconds: float) -> None:
    try:
        holdfast.wait_for(work, seconds)
    except Exception as problem:  # noqa: BLE001
        kind = type(problem).__name__
        print(what, kind, isinstance(problem, TimeoutError), flush=True)
    else:
        print(what, "done", flush=True)


dist.init_process_group("gloo", timeout=timedelta(seconds=3))
value = torch.ones(4)
tell("together", dist.all_reduce(value, async_op=True), 60)
tell("nothing", None, 1)
if os.environ["RANK"] == "0":
    alone = dist.all_reduce(value, async_op=True)
    tell("short", alone, 0.3)  # torch: 'Operation timed out!'
    tell("long", alone, 60)  # Gloo's own: 'Timed out waiting 3000ms for recv'
    print("ready", flush=True)
sys.stdin.read()
