"""What TORCH_NCCL_ENABLE_TIMING=1 costs, which `holdfast run` sets: needs a GPU.

    python -m bench.nccl_timing [--rounds 5] [--ranks 1]

Both settings run side by side, in turns, each time in fresh processes: the script's time for one
small all_reduce that it does not wait for, and the time of a whole training step with DDP.
"""

from __future__ import annotations

import argparse
import json
import os
import socket
import statistics
import subprocess
import sys
import time
from typing import Any

CALLS = 2000
STEPS = 200


def main() -> None:
    parser = argparse.ArgumentParser(description="the cost of TORCH_NCCL_ENABLE_TIMING")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 2])
    parser.add_argument("--rank", type=int, help=argparse.SUPPRESS)
    asked = parser.parse_args()
    if asked.rank is not None:
        print(json.dumps(measure(asked.rank)))
        return
    print("| ranks | | off | on | ratio |\n|---|---|---|---|---|")
    for ranks in asked.ranks:
        times: dict[str, list[dict[str, float]]] = {"0": [], "1": []}
        for number in range(asked.rounds):
            for setting in ("0", "1") if number % 2 else ("1", "0"):
                times[setting].append(one_round(ranks, setting))
        for what in ("µs an all_reduce asked for", "µs an all_reduce done", "ms a DDP step"):
            off, on = (statistics.median(t[what] for t in times[s]) for s in ("0", "1"))
            print(f"| {ranks} | {what} | {off:.2f} | {on:.2f} | {on / off:.3f} |", flush=True)


def one_round(ranks: int, setting: str) -> dict[str, float]:
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    jobs = [
        subprocess.Popen(
            [sys.executable, "-m", "bench.nccl_timing", "--rank", str(rank)],
            stdout=subprocess.PIPE,
            env={
                **os.environ,
                "RANK": str(rank),
                "WORLD_SIZE": str(ranks),
                "MASTER_ADDR": "127.0.0.1",
                "MASTER_PORT": str(port),
                "NCCL_HOSTID": f"host{rank}",
                "TORCH_NCCL_ENABLE_TIMING": setting,
                "TORCH_FR_BUFFER_SIZE": "2000",
            },
        )
        for rank in range(ranks)
    ]
    answers = [job.communicate()[0] for job in jobs]
    told: dict[str, float] = json.loads(answers[0].splitlines()[-1])
    return told


def measure(rank: int) -> dict[str, float]:
    import torch  # noqa: PLC0415 - only a rank needs it
    import torch.distributed as dist  # noqa: PLC0415
    from torch import nn  # noqa: PLC0415

    torch.cuda.set_device(rank % torch.cuda.device_count())
    dist.init_process_group("nccl")
    x = torch.ones(1024, device="cuda")

    def asked_for() -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(CALLS // 10):
            dist.all_reduce(x, async_op=True)
        return (time.perf_counter() - begun) / (CALLS // 10) * 1e6

    def done() -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(CALLS):
            dist.all_reduce(x)
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / CALLS * 1e6

    model: Any = nn.Sequential(*(nn.Linear(1024, 1024) for _ in range(8))).cuda()
    model = nn.parallel.DistributedDataParallel(model, bucket_cap_mb=4)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.0)
    batch = torch.randn(512, 1024, device="cuda")

    def steps() -> float:
        torch.cuda.synchronize()
        begun = time.perf_counter()
        for _ in range(STEPS):
            optimizer.zero_grad()
            model(batch).mean().backward()
            optimizer.step()
        torch.cuda.synchronize()
        return (time.perf_counter() - begun) / STEPS * 1e3

    found = {}
    for what, way in (
        ("µs an all_reduce asked for", asked_for),
        ("µs an all_reduce done", done),
        ("ms a DDP step", steps),
    ):
        way()  # NCCL connects, torch fills its caches
        found[what] = min(way() for _ in range(5))
    dist.destroy_process_group()
    return found


if __name__ == "__main__":
    main()
