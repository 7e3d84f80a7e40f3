"""A machine with GPUs and NCCL, as torch shows it to a rank, on a machine that has neither.

On PYTHONPATH of a rank it lets torch believe in FAKE_GPUS GPUs. Groups of NCCL are formed over
Gloo: ranks, stores, sums and their failures are real, and only the GPU and NCCL's choice of a
transport are made up. NCCL's lines are those of 2.28 with `NCCL_DEBUG=INFO`.

FAKE_NCCL_BROKEN  'p2p': whatever goes from GPU to GPU never arrives; 'shm', 'net': refused;
                  'sums': P2P gives wrong sums
FAKE_SLOW_GPU     rank whose exchanges take FAKE_SLOW_SECONDS more
"""

from __future__ import annotations

import builtins
import os
import sys
import time
from typing import Any

GPUS = int(os.environ.get("FAKE_GPUS", "0"))
BROKEN = os.environ.get("FAKE_NCCL_BROKEN", "")
UUID = os.environ.get("FAKE_UUID", "00000000-0000-0000-0000-00000000000")
VERSION = tuple(map(int, os.environ.get("FAKE_NCCL_VERSION", "2.28.9").split(".")))


def transport() -> str:
    if os.environ.get("NCCL_P2P_DISABLE") != "1":
        return "P2P/CUMEM/read"
    if os.environ.get("NCCL_SHM_DISABLE") != "1":
        return "SHM/direct/direct"
    return "NET/Socket/0"


def say_the_links(rank: int, world: int) -> None:
    if os.environ.get("NCCL_DEBUG") != "INFO" or os.environ.get("NCCL_DEBUG_FILE"):
        return
    used = transport()
    mark = "[send] " if used.startswith("NET") else ""
    for channel in range(2):
        to = (rank + 1) % world
        print(
            f"fake:{os.getpid()}:{os.getpid()} [{rank}] NCCL INFO Channel {channel:02d}/0 : "
            f"{rank}[{rank}] -> {to}[{to}] {mark}via {used}",
            flush=True,
        )
    if rank == 0 and os.environ.get("NCCL_RUN_DIAGNOSTICS") == "1":
        print(
            f"fake:{os.getpid()} NCCL DIAG [OK]   p2p: verified P2P access in both directions "
            "between every GPU pair",
            flush=True,
        )


def pretend(torch: Any) -> None:
    dist = torch.distributed
    begin, all_reduce, batch = dist.init_process_group, dist.all_reduce, dist.batch_isend_irecv
    real_device = torch.device
    torch.device = lambda name="cpu": real_device("cpu" if str(name).startswith("cuda") else name)
    torch.cuda.device_count = lambda: GPUS
    torch.cuda.set_device = lambda _: None
    torch.cuda.mem_get_info = lambda _=None: (0, 80 << 30)
    torch.cuda.get_device_properties = lambda _: type(
        "Properties", (), {"uuid": f"{UUID}{os.environ['LOCAL_RANK']}"}
    )
    torch.cuda.nccl.version = lambda: VERSION
    dist.is_nccl_available = lambda: True
    nccl = {"on": False}

    def init(backend: str, **options: Any) -> None:
        nccl["on"] = backend == "nccl"
        options["device_id"] = None
        kind = transport().partition("/")[0].lower()
        if nccl["on"] and BROKEN == kind != "p2p":
            raise RuntimeError(f"NCCL error: unhandled system error: fake {kind} is broken")
        begin("gloo", **options)
        if nccl["on"]:
            say_the_links(options["rank"], options["world_size"])

    def reduce(row: Any, *rest: Any, **options: Any) -> Any:
        if nccl["on"] and transport().startswith("P2P"):
            if BROKEN == "p2p" and row.numel() > 1:
                time.sleep(3600)
            done = all_reduce(row, *rest, **options)
            if BROKEN == "sums" and row.numel() > 1:
                row[7] += 1
            return done
        return all_reduce(row, *rest, **options)

    def exchange(calls: Any) -> Any:
        if os.environ.get("FAKE_SLOW_GPU") in (os.environ["LOCAL_RANK"], str(calls[0].peer)):
            time.sleep(float(os.environ["FAKE_SLOW_SECONDS"]))
        return batch(calls)

    dist.init_process_group, dist.all_reduce, dist.batch_isend_irecv = init, reduce, exchange


def pretend_once_imported() -> None:
    """As soon as the rank itself has imported torch.distributed."""
    plain = builtins.__import__

    def importing(name: str, *rest: Any, **options: Any) -> Any:
        module = plain(name, *rest, **options)
        if name == "torch.distributed" and rest and rest[0].get("__name__", "").endswith(".rank"):
            builtins.__import__ = plain
            pretend(sys.modules["torch"])
        return module

    builtins.__import__ = importing


if GPUS and "LOCAL_RANK" in os.environ:
    pretend_once_imported()
