"""What a checkpoint costs, ours beside others': pause, time to the disk, resume, memory.

    python -m bench.checkpoint [--size MiB] [--device cuda] [--repeats N] [--folder DIR]
                               [--only speed|memory]

The state is a model of transformer-like tensors with AdamW. Everything in one run, in turns,
medians: timings on a shared machine are noisy, their ratios less so. The pause ('stall') is held to
the copy of one block of as many bytes: from a GPU into pinned memory, else memcpy by one thread.
Writing is held to dd of the same bytes with an fsync, resuming to dd reading them; before every
load the files are put out of the page cache. torch runs with one thread, as under a launcher.
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
from dataclasses import dataclass, field
from pathlib import Path

import torch

import holdfast
from bench.checkpoint_memory import Peak
from bench.checkpoint_peers import peers
from bench.checkpoint_ways import (
    DD,
    MEMCPY,
    OURS,
    PINNED,
    Ours,
    Took,
    Way,
    group_of_one,
    limits,
    torch_ways,
)

MIB = 1 << 20


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=1024, help="MiB of state")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--folder", default=".", help="on the disk to be measured")
    parser.add_argument("--only", choices=["speed", "memory"])
    parser.add_argument("--ways", nargs="+", default=[], help="such as 'dcp.save' DLRover")
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
    given: argparse.Namespace, *, only: str = "", beside_limits: bool = False
) -> Iterator[tuple[dict[str, Way], str]]:
    with group_of_one(), tempfile.TemporaryDirectory(dir=given.folder) as folder:
        state = a_state(given.size * MIB, given.device)
        ours = Ours(state)
        ways = {OURS: Way(ours.save, ours.load, ours.close)} | torch_ways(state) | peers(state)
        ways = {name: way for name, way in ways.items() if only in ("", name)}
        if given.ways:
            chosen = [name for name in ways if any(part in name for part in given.ways)]
            ways = {name: ways[name] for name in [OURS, *chosen] if name in ways}
        yield limits(state) | ways if beside_limits else ways, folder
        for way in ways.values():
            way.close()


def a_state(size: int, device: str) -> holdfast.State:
    """A third each for the parameters and AdamW's two averages."""
    sizes = [(size // 3 // 4 // 5 // 1024, 1024)]
    while (left := size // 3 // 4 - sum(rows * columns for rows, columns in sizes)) > 0:
        rows = 4096 if len(sizes) % 6 == 0 else 1024
        sizes += [(min(rows, -(-left // 1024)), 1024), (1, 1024)]
    model = torch.nn.ParameterList(
        torch.nn.Parameter(torch.randn(each, device=device)) for each in sizes
    )
    optimizer = torch.optim.AdamW(model.parameters())
    for weight in model:
        weight.grad = torch.zeros_like(weight)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return holdfast.State(model=model, optimizer=optimizer)


# --- speed -------------------------------------------------------------------------------------


@dataclass
class Results:
    saves: list[Took] = field(default_factory=list)
    loads: list[float] = field(default_factory=list)
    problem: str = ""
    """what it raised; it is then left out"""

    @property
    def first(self) -> float:
        return self.saves[0].stall

    @property
    def stall(self) -> float:
        return statistics.median(each.stall for each in self.saves[1:])

    @property
    def total(self) -> float:
        return statistics.median(each.total for each in self.saves[1:])

    @property
    def load(self) -> float:
        return statistics.median(self.loads) if self.loads else 0.0


def speed(given: argparse.Namespace) -> None:
    with prepared(given, beside_limits=True) as (ways, folder):
        report(measure(ways, folder, given.repeats), given)


def measure(ways: dict[str, Way], folder: str, repeats: int) -> dict[str, Results]:
    """In turns, so that a slow minute of the machine hits all; the first turn is kept apart."""
    results = {name: Results() for name in ways}
    for _ in range(repeats + 1):
        for name, way in ways.items():
            if not results[name].problem:
                once(way, os.path.join(folder, "save"), results[name])
                print(name, results[name].problem, file=sys.stderr, flush=True)
    return results


def once(way: Way, place: str, result: Results) -> None:
    os.sync()
    try:
        result.saves.append(way.save(place))
        if way.load is not None:
            forget(place)
            began = time.monotonic()
            way.load(place)
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            result.loads.append(time.monotonic() - began)
    except Exception as problem:  # noqa: BLE001 - others' code, on a machine lent for minutes
        result.problem = f"{type(problem).__name__}: {problem}"
    finally:
        shutil.rmtree(place, ignore_errors=True)


def forget(place: str) -> None:
    """So that it comes from the disk, and not from what the kernel remembers."""
    os.sync()
    for path in Path(place).rglob("*"):
        if path.is_file():
            fd = os.open(path, os.O_RDONLY)
            os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(fd)


def report(results: dict[str, Results], given: argparse.Namespace) -> None:
    best = results[PINNED if PINNED in results else MEMCPY]
    disk = results[DD]
    where = torch.cuda.get_device_name() if given.device == "cuda" else "CPU"
    print(f"{given.size} MiB of state, {where}, torch {torch.__version__}, {os.cpu_count()} cores; "
          f"seconds, medians of {given.repeats} in one run")  # fmt: skip
    print(f"{'':32}{'first':>8}{'stall':>8}{'x copy':>8}{'on disk':>9}{'x dd':>6}{'load':>8}"
          f"{'x read':>8}")  # fmt: skip
    for name, one in results.items():
        if one.problem:
            print(f"{name:32} failed: {one.problem:.120}")
            continue
        written = f"{one.total:9.2f}{one.total / disk.total:6.2f}" if one.total else f"{'-':>9}"
        read = f"{one.load:8.2f}{one.load / disk.load:8.2f}" if one.loads else ""
        print(f"{name:32}{one.first:8.3f}{one.stall:8.3f}{one.stall / best.stall:8.2f}{written}"
              f"{read}", flush=True)  # fmt: skip


# --- memory ------------------------------------------------------------------------------------


def memory(given: argparse.Namespace) -> None:
    print(f"{given.size} MiB of state; the most memory of the host that two saves take beyond it")
    for name in all_names(given):
        taken = peak_alone(name, given) / MIB
        print(f"{name:32}{taken:7.0f} MiB{taken / given.size:7.2f} x", flush=True)


def all_names(given: argparse.Namespace) -> list[str]:
    small = argparse.Namespace(**{**vars(given), "size": 8})
    with prepared(small) as (ways, _):
        return [name for name, way in ways.items() if way.load or "dcp" in name or "nvidia" in name]


def peak(given: argparse.Namespace) -> int:
    with prepared(given, only=given.peak_of) as (ways, folder), Peak() as seen:
        for number in range(2):
            ways[given.peak_of].save(os.path.join(folder, f"save{number}"))
    return seen.extra


def peak_alone(name: str, given: argparse.Namespace) -> int:
    """In a process of its own: looking costs time, and some ways keep their memory."""
    command = [sys.executable, "-m", "bench.checkpoint", "--peak-of", name, "--size",
               str(given.size), "--folder", given.folder, "--device", given.device]  # fmt: skip
    said = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    return int(said.stdout.split()[-1])


if __name__ == "__main__":
    sys.exit(main())
