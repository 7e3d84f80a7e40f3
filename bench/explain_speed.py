"""How fast `holdfast explain` reads a log: beside ripgrep with the same literals, and in what
memory.

The log is made here: 256 ranks interleaved, NCCL's start-up, steps and progress bars for hours,
then one rank is killed and the others time out. `--mb` sets its size, `--hot` counts instead
which anchors the healthy part of it holds: each of those lines costs Python's time.
"""

from __future__ import annotations

import argparse
import collections
import os
import random
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from typing import NamedTuple

from holdfast import catalogue
from holdfast.explain.read.scan import Scanner

RANKS = 256
PER_NODE = 8
LOST = 77
ROUNDS = 3


def start_up(rank: int) -> Iterator[str]:
    """What torchrun, NCCL 2.27 with NCCL_DEBUG=INFO, and a trainer say before the first step."""
    node, device = divmod(rank, PER_NODE)
    who = f"node{node:02d}:{4000 + rank}:{4000 + rank} [{device}] NCCL INFO"
    yield f"[rank{rank}]: {time.ctime(1.79e9)} INFO model with 6.7 B parameters, 32 layers"
    yield f"{who} Bootstrap: Using ens5:10.0.0.{node + 1}<0>"
    yield f"{who} NCCL version 2.27.5+cuda12.9"
    yield f"{who} NET/IB : Using [0]mlx5_0:1/IB [1]mlx5_1:1/IB [RO]; OOB ens5:10.0.0.{node + 1}<0>"
    yield f"{who} Using network IB"
    common = f"comm 0x55d0c{rank:04x}0 rank {rank} nranks {RANKS} cudaDev {device} nvmlDev {device}"
    yield f"{who} ncclCommInitRankConfig {common} busId {device}b000 commId 0x7f3a - Init START"
    for channel in range(16):
        yield f"{who} Trees [{channel}] {rank + 1}/-1/-1->{rank}->{rank - 1}"
        path = f"{rank}[{device}] -> {rank + 1}[{device}]"
        yield f"{who} Channel {channel:02d}/0 : {path} via P2P/CUMEM"
    yield f"{who} 16 coll channels, 16 collnet channels, 0 nvls channels, 16 p2p channels"
    yield f"{who} ncclCommInitRankConfig {common} busId {device}b000 commId 0x7f3a - Init COMPLETE"


def training(mb: int) -> Iterator[bytes]:
    """The first steps of all ranks, then as many blocks of later ones as it takes."""
    yield steps(0)
    later = steps(300)
    for _ in range((mb << 20) // len(later)):
        yield later


def steps(first: int) -> bytes:
    """Three hundred of all ranks, with a progress bar of the first rank."""
    numbers, lines = random.Random(5), []
    for step in range(first, first + 300):
        bar = f"{step / 90:3.0f}%|{'#' * (step // 300):<25}| {step}/9000"
        lines.append(f"\r{bar} [00:{step % 60:02d}<1:12:40, 1.27it/s]")
        for rank in range(RANKS):
            at = f"2026-11-15 08:{step // 60 % 60:02d}:{step % 60:02d},{rank:03d}"
            loss, norm = numbers.uniform(2, 3), numbers.uniform(0, 1)
            lines.append(
                f"[rank{rank}]: {at} INFO train.py:211 step {step} | loss {loss:.4f} | grad norm "
                f"{norm:.3f} | lr 1.2e-04 | tokens/s 21{rank:03d} | memory 61.{rank % 10} GiB"
            )
        lines.append(f"[rank0]: {at} INFO checkpoint step-{step} written in 12.4 s")
    return "\n".join(lines).encode() + b"\n"


def failure(rank: int) -> Iterator[str]:
    """The others' words about the one that says nothing."""
    work = "WorkNCCL(SeqNum=84211, OpType=ALLREDUCE, NumelIn=1048576, NumelOut=1048576, "
    yield (
        f"[rank{rank}]:[E1115 10:12:{rank % 60:02d}.1 ProcessGroupNCCL.cpp:683] [Rank {rank}] "
        f"Watchdog caught collective operation timeout: {work}Timeout(ms)=600000) ran for 600031 "
        f"milliseconds before timing out."
    )
    yield (
        f"[rank{rank}]:[E1115 10:12:{rank % 60:02d}.2 ProcessGroupNCCL.cpp:2268] [PG ID 0 "
        f"PG GUID 0 Rank {rank}] failure detected by watchdog at work sequence id: 84211 PG "
        f"status: last enqueued work: 84211, last completed work: 84210"
    )


def make_log(path: str, mb: int) -> None:
    with open(path, "wb") as file:
        for rank in range(RANKS):
            file.writelines(f"{line}\n".encode() for line in start_up(rank))
        file.writelines(training(mb))
        for rank in set(range(RANKS)) - {LOST}:
            file.writelines(f"{line}\n".encode() for line in failure(rank))


class Run(NamedTuple):
    seconds: float
    processor: float
    """seconds of it on all cores: more reliable where other work shares the machine"""
    memory: float
    """the largest, in MiB"""


def measured(command: list[str]) -> Run:
    began = time.perf_counter()
    child = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, used = os.wait4(child.pid, 0)
    # Waited for here, because only wait4 reports its memory.
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode not in (0, 1):  # 1: a diagnosis was found
        raise RuntimeError(f"{' '.join(command)} ended with exit code {child.returncode}")
    seconds = time.perf_counter() - began
    return Run(seconds, used.ru_utime + used.ru_stime, used.ru_maxrss / 1024)


def commands(log: str, literals: str) -> dict[str, list[str]]:
    scan = f"from bench.explain_speed import scan; scan({log!r})"
    found = {
        "holdfast explain": [sys.executable, "-m", "holdfast", "explain", log],
        "its scan alone": [sys.executable, "-c", scan],
    }
    searcher = shutil.which("rg")
    if searcher is None:
        print("ripgrep          not installed (Debian: apt-get install ripgrep)")
        return found
    return {"ripgrep": [searcher, "-c", "-F", "-f", literals, log], **found}


def scan(log: str) -> int:
    """Every line with an anchor, and nothing made of it."""
    with open(log, "rb", buffering=0) as file:
        return sum(1 for _ in Scanner(catalogue.log_patterns()).lines(file))


def compare(log: str, literals: str) -> int:
    """0 when the whole way runs at half of ripgrep's speed or more, or ripgrep is not there."""
    size = os.path.getsize(log) / (1 << 20)
    runs: dict[str, list[Run]] = collections.defaultdict(list)
    candidates = commands(log, literals)
    for _ in range(ROUNDS):  # in turn: whatever else this machine does meets all of them
        for name, command in candidates.items():
            runs[name].append(measured(command))
    seconds = {name: statistics.median(run.seconds for run in done) for name, done in runs.items()}
    for name, done in runs.items():
        ratio = seconds["ripgrep"] / seconds[name] if "ripgrep" in seconds else float("nan")
        print(
            f"{name:<16} {seconds[name]:6.2f} s  {size / seconds[name]:6.0f} MiB/s  "
            f"{ratio:4.2f} x ripgrep  {statistics.median(run.processor for run in done):6.2f} s of "
            f"processor  at most {max(run.memory for run in done):5.0f} MiB"
        )
    if "ripgrep" in seconds:
        print("ripgrep maps the file, so its pages count as its memory.")
    return int(seconds["holdfast explain"] > 2 * seconds.get("ripgrep", float("inf")))


def hot(log: str) -> None:
    """Anchors in the healthy part, most frequent first."""
    scanner = Scanner(catalogue.log_patterns())
    counts: collections.Counter[str] = collections.Counter()
    lines = 0
    with open(log, "rb", buffering=0) as file:
        for hit in scanner.lines(file):
            if "atchdog" in hit.text:
                break
            lines += 1
            counts.update(a.decode() for a in scanner.anchors if a.decode() in hit.text)
    print(f"{lines:,} lines of the healthy part hold an anchor")
    for anchor, count in counts.most_common(20):
        print(f"{count:>10,}  {anchor}")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--mb", type=int, default=1024, help="size of the log")
    parser.add_argument("--hot", action="store_true", help="count anchors in healthy lines")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        log, literals = os.path.join(folder, "job.log"), os.path.join(folder, "literals")
        make_log(log, asked.mb)
        if asked.hot:
            hot(log)
            return 0
        with open(literals, "wb") as file:
            file.write(b"\n".join(Scanner(catalogue.log_patterns()).anchors) + b"\n")
        return compare(log, literals)


if __name__ == "__main__":
    sys.exit(main())
