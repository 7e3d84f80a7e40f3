"""What a checkpoint costs, ours beside torch's own: stall, time to the disk, memory.

    python -m bench.checkpoint [--size MiB] [--repeats N] [--folder DIR] [--only speed|memory]

The state is a model of transformer-like tensors with AdamW. Everything in one run, in turns,
medians: timings on a shared machine are noisy, their ratios less so. The stall is what training
waits for, and it is held to the strictest memcpy: one thread, one warm block of as many bytes,
which the C library copies faster than tensor by tensor. Training is paused meanwhile, so our
copy may use all cores; the same block copied by as many threads is printed, too. torch runs with
one thread, as under a launcher.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator

import torch

from bench.checkpoint_memory import Peak
from bench.checkpoint_ways import (
    DD,
    MEMCPY,
    OURS,
    SHARED,
    WAYS,
    Took,
    Way,
    all_ways,
    copies,
    group_of_one,
)
from holdfast.checkpoint.staging import StagingBuffer
from holdfast.checkpoint.state import State

MIB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=1024, help="MiB of state")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=".", help="on the disk to be measured")
    parser.add_argument("--only", choices=["speed", "memory"])
    parser.add_argument("--peak-of", default="", help=argparse.SUPPRESS)
    given = parser.parse_args()
    torch.set_num_threads(1)
    if given.peak_of:
        print(peak(given))
        return 0
    if given.only != "memory":
        speed(given)
    if given.only != "speed":
        memory(given)
    return 0


@contextlib.contextmanager
def prepared(
    given: argparse.Namespace,
) -> Iterator[tuple[State, StagingBuffer, dict[str, Way], str]]:
    with (
        group_of_one(),
        tempfile.TemporaryDirectory(dir=given.folder) as folder,
        contextlib.closing(StagingBuffer()) as buffer,
        contextlib.ExitStack() as stack,
    ):
        state = a_state(given.size * MIB)
        yield state, buffer, all_ways(state, buffer, stack), folder


def a_state(size: int) -> State:
    """A third each for the parameters and AdamW's two averages."""
    weights = [torch.nn.Parameter(torch.randn(size // 3 // 4 // 5 // 1024, 1024))]
    while (left := size // 3 // 4 - sum(weight.numel() for weight in weights)) > 0:
        rows = 4096 if len(weights) % 6 == 0 else 1024
        weights.append(torch.nn.Parameter(torch.randn(min(rows, -(-left // 1024)), 1024)))
        weights.append(torch.nn.Parameter(torch.randn(1024)))
    model = torch.nn.ParameterList(weights)
    optimizer = torch.optim.AdamW(model.parameters())
    for weight in weights:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return State(model=model, optimizer=optimizer)


def size_of(state: State) -> int:
    return sum(named.size for named in state.capture(0).tensors)


# --- speed -------------------------------------------------------------------------------------


def speed(given: argparse.Namespace) -> None:
    with prepared(given) as (state, buffer, ways, folder):
        taken = warm(state, buffer)
        results = measure({**copies(state, buffer.threads), **ways}, folder, given.repeats)
        report(results, size_of(state), buffer.threads)
        print(f"memory for the first save: {taken:.2f} s in the background, before it")


def warm(state: State, buffer: StagingBuffer) -> float:
    """As Checkpoint does after the second step; here nothing else happens meanwhile."""
    captured = state.capture(0)
    began = time.monotonic()
    buffer.warm(captured.tensors, len(captured.text))
    buffer.settle()
    return time.monotonic() - began


def measure(ways: dict[str, Way], folder: str, repeats: int) -> dict[str, list[Took]]:
    """In turns, so that a slow minute of the machine hits all; the first turn is kept apart."""
    results: dict[str, list[Took]] = {name: [] for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            results[name].append(once(way, folder))
    return results


def once(way: Way, folder: str) -> Took:
    place = os.path.join(folder, "save")
    os.sync()
    try:
        return way(place)
    finally:
        shutil.rmtree(place, ignore_errors=True)


def report(results: dict[str, list[Took]], size: int, threads: int) -> None:
    warm = {name: took[1:] for name, took in results.items()}
    stall = {name: statistics.median(each.stall for each in took) for name, took in warm.items()}
    total = {name: statistics.median(each.total for each in took) for name, took in warm.items()}
    print(f"{size / MIB:.0f} MiB of state; seconds, medians of {len(warm[OURS])} in one run")
    print(f"{'':32}{'first':>7}{'stall':>8}{'x memcpy':>10}{f'x {threads} thr.':>10}{'on disk':>9}")
    for name, took in results.items():
        disk = f"{total[name]:.2f}" if total[name] else "-"
        ratios = "".join(f"{stall[name] / stall[other]:10.2f}" for other in (MEMCPY, SHARED))
        print(f"{name:32}{took[0].stall:7.2f}{stall[name]:8.3f}{ratios}{disk:>9}")
    writing = [each.total - each.stall for each in warm[OURS]]
    speeds = size / MIB / statistics.median(writing), size / MIB / total[DD]
    print(f"stall {stall[OURS] / stall[MEMCPY]:.2f} x memcpy of one block, 1 thread; limit 1.3")
    print(f"stall {stall[OURS] / stall[SHARED]:.2f} x the same by {threads} threads, as ours")
    print(f"writing {speeds[0]:.0f} MiB/s, {speeds[0] / speeds[1]:.2f} x dd; limit 0.8", flush=True)


# --- memory ------------------------------------------------------------------------------------


def memory(given: argparse.Namespace) -> None:
    print(f"{given.size} MiB of state; the most memory that two saves take beyond it")
    for name in WAYS:
        limit = "; limit one copy, and the writer" if name == OURS else ""
        taken = peak_alone(name, given) / MIB
        print(f"{name:32}{taken:7.0f} MiB{taken / given.size:7.2f} x{limit}", flush=True)


def peak(given: argparse.Namespace) -> int:
    with prepared(given) as (_, _, ways, folder), Peak() as seen:
        once(ways[given.peak_of], folder)
        once(ways[given.peak_of], folder)
    return seen.extra


def peak_alone(name: str, given: argparse.Namespace) -> int:
    """In a process of its own: looking costs time, and some ways keep their memory."""
    command = [sys.executable, "-m", "bench.checkpoint", "--peak-of", name,
               "--size", str(given.size), "--folder", given.folder]  # fmt: skip
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(said.stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(main())
