"""Break jobs of many groups over NCCL, and keep their logs and flight recorders: needs a GPU.

    python -m tools.mesh_wrecks OUT [--shape 2x2x4] [--shift N] [--only NAME ...]

All ranks share one GPU; NCCL_HOSTID makes each a host of its own. One folder a job, as
bench.explain_cases reads them: rankN.log, fr_N, truth.json.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import signal
import socket
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

CASES: dict[str, tuple[str, str, tuple[str, ...]]] = {
    "sleep": ("sleep:6", "rank-stuck", ()),
    "sleep-last-stage": ("sleep:13", "rank-stuck", ()),
    "sleep-two": ("sleep:6,sleep:9", "rank-stuck", ()),
    "stop": ("stop:5", "rank-frozen", ("rank-stuck", "rank-killed")),
    "kill": ("kill:3", "rank-killed", ("rank-stuck", "rank-frozen")),
    "skip": ("skip:10", "rank-conditional-code", ("collective-mismatch",)),
    "size": ("size:7", "collective-mismatch", ()),
    "raise": ("raise:12", "python-exception", ()),
    "exit": ("exit:2", "rank-exits-early", ("rank-killed",)),
    "sleep-and-kill": ("sleep:1,kill:14", "rank-killed", ("rank-stuck",)),
}
"""name: what is broken, the cause, and what the logs cannot tell it from"""
GROUP_TIMEOUT = 25.0
PATIENCE = 150.0
QUIET = 8.0
"""no dump has grown for so long: the ranks have written what they will write"""


def _free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


def start(folder: Path, fault: str, shape: str) -> list[subprocess.Popen[bytes]]:
    world, port = math.prod(int(n) for n in shape.split("x")), _free_port()
    started = []
    for rank in range(world):
        environment = {
            **os.environ, "RANK": str(rank), "WORLD_SIZE": str(world), "LOCAL_RANK": "0",
            "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "SHAPE": shape, "FAULT": fault,
            "GROUP_TIMEOUT": str(GROUP_TIMEOUT), "NCCL_HOSTID": f"host{rank}",
            "NCCL_SOCKET_IFNAME": "lo", "NCCL_IB_DISABLE": "1", "NCCL_MAX_NCHANNELS": "1",
            "TORCH_FR_BUFFER_SIZE": "60", "TORCH_NCCL_TRACE_BUFFER_SIZE": "60",
            "TORCH_NCCL_DUMP_ON_TIMEOUT": "1",
            "TORCH_NCCL_DEBUG_INFO_TEMP_FILE": str(folder / "fr_"),
            "TORCH_FR_DUMP_TEMP_FILE": str(folder / "fr_"),
        }  # fmt: skip
        with (folder / f"rank{rank}.log").open("wb") as log:
            words = [sys.executable, "-m", "tools.mesh_job"]
            started.append(subprocess.Popen(words, env=environment, stdout=log, stderr=log))
    return started


def _written(folder: Path) -> int:
    return sum(file.stat().st_size for file in folder.glob("fr_*"))


def _moved(fault: str, shift: int, shape: str) -> str:
    """The same faults, other ranks."""
    world = math.prod(int(n) for n in shape.split("x"))
    pairs = (pair.split(":") for pair in fault.split(","))
    return ",".join(f"{kind}:{(int(rank) + shift) % world}" for kind, rank in pairs)


def make(folder: Path, name: str, shape: str, shift: int) -> None:
    fault, cause, accept = CASES[name]
    fault = _moved(fault, shift, shape)
    folder.mkdir(parents=True)
    ranks = start(folder, fault, shape)
    began = changed = time.monotonic()
    size = 0
    try:
        while (now := time.monotonic()) - began < PATIENCE:
            if (grown := _written(folder)) != size:
                size, changed = grown, now
            if size and now - changed > QUIET:
                break
            time.sleep(0.5)
    finally:
        for rank in ranks:
            rank.send_signal(signal.SIGKILL)
            rank.wait()
    culprits = [f"rank {pair.split(':')[1]}" for pair in fault.split(",")]
    truth = {"cause": cause, "accept": accept, "culprit": culprits[0], "all": culprits}
    (folder / "truth.json").write_text(json.dumps(truth, indent=1) + "\n")
    dumps = len(list(folder.glob("fr_*")))
    print(f"{name}: {dumps} dumps, {time.monotonic() - began:.0f} s", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=str(__doc__).partition("\n")[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--shape", default="2x2x4", help="pipeline x data x tensor")
    parser.add_argument("--shift", type=int, default=0, help="break other ranks, so much higher")
    parser.add_argument("--only", nargs="*", choices=CASES, default=list(CASES))
    parser.add_argument("--at-once", type=int, default=2)
    arguments = parser.parse_args()
    with ThreadPoolExecutor(arguments.at_once) as pool:
        jobs = [
            pool.submit(make, arguments.out / name, name, arguments.shape, arguments.shift)
            for name in arguments.only
        ]
        for job in jobs:
            job.result()


if __name__ == "__main__":
    main()
