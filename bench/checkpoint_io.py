"""Saves and resumes beside the disk itself and beside torch's DCP, two ranks, in one run.

    python -m bench.checkpoint_io [--size MiB] [--repeats N] [--folder DIR]

DDP, where rank 0 writes everything and every rank loads everything, and FSDP2, where each rank
writes and loads its half. In turns, medians; the page cache is dropped of every file before it is
read. 'disk' is as many bytes, written by as many ranks with O_DIRECT and fsync, or read by both
ranks, half each, and put nowhere. CPU: of all ranks together, without the processes that write.
"""

from __future__ import annotations

import argparse
import json
import mmap
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict import get_state_dict
from torch.distributed.checkpoint.state_dict_loader import load as dcp_load
from torch.distributed.checkpoint.state_dict_saver import save as dcp_save
from torch.distributed.fsdp import fully_shard

import holdfast
from holdfast.checkpoint.checkpoint import Checkpoint

MIB = 1 << 20
CHUNK = 16 * MIB
RANKS = 2


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--size", type=int, default=1024, help="MiB of state, of all ranks")
    parser.add_argument("--repeats", type=int, default=5)
    parser.add_argument("--folder", default=".", help="on the disk to be measured")
    parser.add_argument("--kind", choices=["ddp", "fsdp2"], help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.kind:
        measure(given)
        return 0
    for kind in ("ddp", "fsdp2"):
        with tempfile.TemporaryDirectory(dir=given.folder) as folder:
            launch(kind, given, folder)
    return 0


def launch(kind: str, given: argparse.Namespace, folder: str) -> None:
    command = [sys.executable, "-m", "torch.distributed.run", f"--nproc-per-node={RANKS}",
               "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0", "-m", "bench.checkpoint_io",
               "--kind", kind, "--size", str(given.size), "--repeats", str(given.repeats),
               "--folder", folder]  # fmt: skip
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, check=True,
        env={**os.environ, "OMP_NUM_THREADS": "1"},
    )  # fmt: skip
    report(kind, json.loads(done.stdout.splitlines()[-1]))


def report(kind: str, told: dict[str, Any]) -> None:
    found, cpu, size = told["seconds"], told["cpu"], told["size"] / MIB
    medians = {name: statistics.median(times) for name, times in found.items()}
    print(f"{kind}: {size:.0f} MiB, {RANKS} ranks; medians of {len(found['save'])}")
    for verb, others in (("save", ("dcp.save",)), ("resume", ("dcp.load",))):
        disk = medians["disk write" if verb == "save" else "disk read"]
        for name in ("disk write" if verb == "save" else "disk read", verb, *others):
            seconds = medians[name]
            spread = f"{min(found[name]):.2f}-{max(found[name]):.2f}"
            print(f"  {name:12}{seconds:7.2f} s ({spread}){size / seconds:8.0f} MiB/s"
                  f"{disk / seconds:7.2f} of the disk"
                  f"{statistics.median(cpu[name]):8.2f} s of CPU")  # fmt: skip


# --- one rank ----------------------------------------------------------------------------------


def measure(given: argparse.Namespace) -> None:
    dist.init_process_group("gloo")
    holder = a_state(given.kind, given.size * MIB)
    ours = os.path.join(given.folder, "ours")
    theirs = os.path.join(given.folder, "dcp")
    raw = os.path.join(given.folder, "raw")
    found: dict[str, list[float]] = {}
    cpu: dict[str, list[float]] = {}
    size = 0

    def timed(name: str, work: Callable[[], object]) -> None:
        dist.barrier()
        began, busy = time.monotonic(), time.process_time()
        work()
        used = torch.tensor(time.process_time() - busy, dtype=torch.float64)
        dist.barrier()
        found.setdefault(name, []).append(time.monotonic() - began)
        dist.all_reduce(used)
        cpu.setdefault(name, []).append(used.item())

    def clear(folder: str) -> None:
        dist.barrier()
        if dist.get_rank() == 0:
            shutil.rmtree(folder, ignore_errors=True)
        dist.barrier()

    with Checkpoint(ours, holder, keep=1) as ckpt:
        ckpt.save()  # takes the memory
        size = folder_size(ours)
        written = size if given.kind == "ddp" else size // RANKS
        for _ in range(given.repeats):
            clear(raw)
            clear(theirs)
            holder.step += 1
            timed("disk write", lambda: write_raw(raw, written, given.kind))
            timed("save", ckpt.save)
            timed("dcp.save", lambda: dcp_save(their_state(holder), checkpoint_id=theirs))
    for _ in range(given.repeats):
        os.sync()
        for folder in (ours, theirs, raw):
            drop(folder)
        timed("disk read", lambda: read_raw(raw))
        with Checkpoint(ours, holder) as ckpt:
            timed("resume", ckpt.resume)
        timed("dcp.load", lambda: dcp_load(their_state(holder), checkpoint_id=theirs))
    if dist.get_rank() == 0:
        print(json.dumps({"seconds": found, "cpu": cpu, "size": size}))
    dist.destroy_process_group()


def a_state(kind: str, size: int) -> holdfast.State:
    """A third each for the parameters and AdamW's two averages."""
    torch.manual_seed(0)
    side = 1024
    layers = max(1, size // 3 // 4 // side // side)
    model: torch.nn.Module = torch.nn.Sequential(
        *(torch.nn.Linear(side, side) for _ in range(layers))
    )
    if kind == "fsdp2":
        fully_shard(model)
    else:
        model = torch.nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.zeros_like(parameter)
    optimizer.step()
    optimizer.zero_grad(set_to_none=True)
    return holdfast.State(model=model, optimizer=optimizer)


def their_state(state: holdfast.State) -> dict[str, object]:
    assert state.model is not None
    assert state.optimizer is not None
    model, optimizer = get_state_dict(state.model, state.optimizer)
    return {"model": model, "optimizer": optimizer}


def files_in(folder: str) -> list[str]:
    return sorted(
        os.path.join(where, name) for where, _, names in os.walk(folder) for name in names
    )


def folder_size(folder: str) -> int:
    return sum(os.path.getsize(path) for path in files_in(folder))


def drop(folder: str) -> None:
    """From the page cache, as after a restart of the machine; both ranks wait for it."""
    for path in files_in(folder):
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        os.close(fd)


def write_raw(folder: str, size: int, kind: str) -> None:
    os.makedirs(folder, exist_ok=True)
    if kind == "ddp" and dist.get_rank():
        return
    memory = mmap.mmap(-1, CHUNK)
    memory[:] = os.urandom(MIB) * (CHUNK // MIB)
    fd = os.open(os.path.join(folder, f"{dist.get_rank()}"),
                 os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_DIRECT)  # fmt: skip
    for _ in range(-(-size // CHUNK)):
        os.write(fd, memory)
    os.fsync(fd)
    os.close(fd)


def read_raw(folder: str) -> None:
    """Through the page cache: half of all bytes on each rank."""
    buffer = memoryview(bytearray(4 * MIB))
    paths = files_in(folder)
    for path in paths if len(paths) == 1 else paths[dist.get_rank() :][:1]:
        size = os.path.getsize(path)
        half = size // RANKS if len(paths) == 1 else size
        start = half * dist.get_rank() if len(paths) == 1 else 0
        fd = os.open(path, os.O_RDONLY)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_SEQUENTIAL)
        at = start
        while at < start + half:
            at += os.preadv(fd, [buffer], at)
        os.close(fd)


if __name__ == "__main__":
    sys.exit(main())
