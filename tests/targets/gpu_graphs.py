"""NCCL ranks whose collectives run inside a CUDA graph, which torch never records:

    gpu_graphs.py STEPS [sleep RANK | sleep-item RANK | evaluate SECONDS | capture SECONDS]

`sleep`: that rank sleeps for ever at step 20, while the others wait in synchronize(), with
`sleep-item` in .item(). `evaluate`: rank 0 is busy at step 20 for so long. `capture`: at step 20
every rank captures anew, for so long: whatever is asked of it meanwhile must not spoil that.
"""

import os
import sys
import time

import torch
import torch.distributed as dist

STEPS = int(sys.argv[1])
WAY, NUMBER = (sys.argv[2], float(sys.argv[3])) if len(sys.argv) > 3 else ("", -1.0)
RANK, WORLD = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])


def captured(x: torch.Tensor, seconds: float = 0.0) -> torch.cuda.CUDAGraph:
    graph = torch.cuda.CUDAGraph()
    dist.all_reduce(x)  # not yet retired when the capture begins
    with torch.cuda.graph(graph):
        y = x * 2
        dist.all_reduce(y)
        time.sleep(seconds)
        y.add_(1)
    return graph


def main() -> None:
    if torch.cuda.device_count() < WORLD:
        os.environ.setdefault("NCCL_HOSTID", f"host{RANK}")
    torch.cuda.set_device(RANK % torch.cuda.device_count())
    dist.init_process_group("nccl")
    x = torch.ones(64, device="cuda")
    for _ in range(3):
        dist.all_reduce(x)
    torch.cuda.synchronize()
    graph = captured(x)
    optimizer = torch.optim.SGD([torch.nn.Parameter(torch.ones(1, device="cuda"))])
    for step in range(STEPS):
        time.sleep(0.05)
        if step == 20 and WAY.startswith("sleep") and int(NUMBER) == RANK:
            time.sleep(10_000)
        if step == 20 and WAY == "evaluate" and RANK == 0:
            time.sleep(NUMBER)
        if step == 20 and WAY == "capture":
            graph = captured(x, NUMBER)
        graph.replay()
        optimizer.step()
        if WAY == "sleep-item":
            x[0].item()
        else:
            torch.cuda.synchronize()
    print("fine", flush=True)
    dist.barrier()
    del graph  # NCCL ends a communicator only when no graph holds it
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
