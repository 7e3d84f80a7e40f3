"""How long it takes to read and analyse the flight-recorder dumps of a big job, and torchfrtrace.

Dumps are made in a temporary folder: every rank has collectives in the default group and in a group
of eight, until one rank misses the last collective. torchfrtrace reads a growing part of them until
it takes too long; its time for all of them is extrapolated from the last two sizes, and marked so.

    python -m bench.explain_dumps [--ranks 1024] [--entries 2000] [--patience 60]
"""

from __future__ import annotations

import argparse
import math
import os
import pickle
import re
import resource
import subprocess
import sys
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

from holdfast.analysis.collectives import standstills
from holdfast.analysis.scene.scene import Recorder
from holdfast.explain.read import dumps

NODE = 8
"""ranks of a small group"""
FRAMES = [
    {"name": name, "filename": f"/opt/env/lib/python3.12/site-packages/torch/{file}", "line": line}
    for name, file, line in (
        ("all_reduce", "distributed/distributed_c10d.py", 3245),
        ("wrapper", "distributed/c10d_logger.py", 83),
        ("forward", "nn/parallel/distributed.py", 1661),
        ("_call_impl", "nn/modules/module.py", 1786),
    )
] + [
    {"name": name, "filename": "/home/user/project/train.py", "line": line}
    for name, line in (("step", 88), ("train", 140), ("main", 201), ("<module>", 230))
]


def dump(rank: int, world: int, entries: int, *, stays_away: bool) -> bytes:
    small = range(rank // NODE * NODE, min(world, rank // NODE * NODE + NODE))
    names = {"0": "default_pg", f"tp{rank // NODE}": "mesh_tp"}
    listed: list[dict[str, Any]] = []
    for number in range(entries):
        group = list(names)[number % 2]
        sequence = 10_000 + number // 2
        is_last = number == entries - 2
        if is_last and stays_away:
            break
        listed.append(entry(number, group, names[group], sequence, is_open=is_last))
        if is_last:
            break
    return pickle.dumps(
        {
            "version": "2.10",
            "pg_config": {
                "0": {"name": "0", "desc": "default_pg", "ranks": str(list(range(world)))},
                f"tp{rank // NODE}": {"name": f"tp{rank // NODE}", "desc": "mesh_tp",
                                      "ranks": str(list(small))},
            },
            "comm_lib_version": "2.28.9",
            "pg_status": {},
            "entries": listed,
        },
        protocol=2,
    )  # fmt: skip


def entry(number: int, group: str, desc: str, sequence: int, *, is_open: bool) -> dict[str, Any]:
    at = 1_794_700_000_000_000_000 + number * 1_000_000
    return {
        "frames": FRAMES,
        "record_id": number,
        "pg_id": 0 if group == "0" else 1,
        "process_group": (group, desc),
        "collective_seq_id": sequence,
        "p2p_seq_id": 0,
        "op_id": sequence,
        "profiling_name": "nccl:all_reduce",
        "time_created_ns": at,
        "input_sizes": [[1024, 4096 + number % 7]],
        "input_dtypes": ["BFloat16"],
        "output_sizes": [[1024, 4096 + number % 7]],
        "output_dtypes": ["BFloat16"],
        "state": "scheduled" if is_open else "completed",
        "time_discovered_started_ns": None,
        "time_discovered_completed_ns": None if is_open else at + 400_000,
        "retired": not is_open,
        "timeout_ms": 600_000,
        "is_p2p": False,
    }


def make(folder: Path, world: int, entries: int, culprit: int) -> int:
    """How many bytes."""
    size = 0
    for first in range(0, world, NODE):
        healthy = dump(first, world, entries, stays_away=False)
        for rank in range(first, min(world, first + NODE)):
            away = rank == culprit
            data = dump(rank, world, entries, stays_away=True) if away else healthy
            (folder / f"fr_{rank}").write_bytes(data)
            size += len(data)
    return size


def ours(folder: Path, world: int, culprit: int) -> float:
    before = _processor(resource.RUSAGE_SELF) + _processor(resource.RUSAGE_CHILDREN)
    began = time.perf_counter()
    paths = [folder / f"fr_{rank}" for rank in range(world)]
    read = dumps.read_all([(path.name, partial(Path.read_bytes, path)) for path in paths])
    recorders = {rank: one for rank, one in enumerate(read) if isinstance(one, Recorder)}
    reading = time.perf_counter() - began
    found = standstills.take(recorders, range(world))
    seconds = time.perf_counter() - began
    assert found.roots == (culprit,), found.roots
    memory = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    used = sum(_processor(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) - before
    print(
        f"holdfast      {world:5} dumps  {seconds:8.1f} s  (reading {reading:.1f} s, processor "
        f"time {used:.1f} s, peak {memory:.0f} MiB)  names rank {culprit}, "
        f"{found.standstills[0].where}"
    )
    return seconds


def _processor(who: int) -> float:
    """Seconds; on a busy machine this is what can be compared."""
    used = resource.getrusage(who)
    return used.ru_utime + used.ru_stime


def theirs(world: int, entries: int, patience: float) -> float | None:
    """Seconds, or None when patience ended."""
    culprit = world // 2 + 1
    with tempfile.TemporaryDirectory() as name:
        make(Path(name), world, entries, culprit)
        program = os.path.join(os.path.dirname(sys.executable), "torchfrtrace")
        began = time.perf_counter()
        try:
            done = subprocess.run(
                [program, name, "--prefix", "fr_"],
                capture_output=True, text=True, timeout=patience, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            print(f"torchfrtrace  {world:5} dumps  more than {patience:.0f} s")
            return None
        seconds = time.perf_counter() - began
    said = done.stdout + done.stderr
    named = re.search(rf"missing ranks: \{{{culprit}\}}|[Cc]ulprit rank {culprit}\b", said)
    print(
        f"torchfrtrace  {world:5} dumps  {seconds:8.1f} s  "
        f"{f'names rank {culprit}' if named else 'does not name the rank'}"
    )
    return seconds


def main() -> int:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--ranks", type=int, default=1024)
    options.add_argument("--entries", type=int, default=2000)
    options.add_argument("--patience", type=float, default=60.0, help="seconds for torchfrtrace")
    chosen = options.parse_args()
    with tempfile.TemporaryDirectory() as name:
        culprit = chosen.ranks * 3 // 4 + 1
        size = make(Path(name), chosen.ranks, chosen.entries, culprit)
        print(f"{chosen.ranks} dumps of {chosen.entries} entries, {size >> 20} MiB")
        seconds = ours(Path(name), chosen.ranks, culprit)
    measured: list[tuple[int, float]] = []
    world = NODE
    while world <= chosen.ranks:
        took = theirs(world, chosen.entries, chosen.patience)
        if took is None:
            break
        measured.append((world, took))
        world *= 2
    if len(measured) < 2:
        return 0
    (smaller, less), (larger, more) = measured[-2:]
    power = max(1.0, math.log(more / less) / math.log(larger / smaller))
    whole = more * (chosen.ranks / larger) ** power
    how = "measured" if larger == chosen.ranks else f"extrapolated, as ranks^{power:.1f}"
    print(f"ratio {whole / seconds:.1f}: torchfrtrace {whole:.0f} s ({how})")
    return 0


if __name__ == "__main__":
    sys.exit(main())
