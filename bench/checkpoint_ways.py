"""Ways to save the same state and to read it again: ours, torch's own, and the machine at best."""

from __future__ import annotations

import contextlib
import ctypes
import os
import shutil
import socket
import statistics
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_loader import load
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save

import holdfast

MEMCPY = "memcpy, one block, 1 thread"
SHARED = "memcpy, one block, all cores"
PINNED = "one copy into pinned memory"
OURS, DD = "holdfast", "dd conv=fsync, and back"


class Took(NamedTuple):
    stall: float
    total: float
    """until it is on the disk; 0 for what never goes there"""


class Way(NamedTuple):
    save: Callable[[str], Took]
    """into the folder of that name, which is new"""
    load: Callable[[str], None] | None = None
    """what was saved there, into the state"""
    close: Callable[[], None] = lambda: None


def plain(state: holdfast.State) -> dict[str, Any]:
    assert state.model
    assert state.optimizer
    return {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}


def give(state: holdfast.State, saved: dict[str, Any]) -> None:
    assert state.model
    assert state.optimizer
    state.model.load_state_dict(saved["model"])
    state.optimizer.load_state_dict(saved["optimizer"])


def device_of(state: holdfast.State) -> torch.device:
    assert state.model
    return next(state.model.parameters()).device


# --- ours --------------------------------------------------------------------------------------


class Ours:
    """By the public interface: a training that calls step(), and its longest pause."""

    def __init__(self, state: holdfast.State) -> None:
        self._state = state
        self._work = training_step(device_of(state))
        self._checkpoint: holdfast.Checkpoint | None = None
        self._root = ""

    def save(self, place: str) -> Took:
        """All saves by one Checkpoint; the finished one is then put where it was asked for."""
        if self._checkpoint is None:
            self._root = f"{place}-root"
            self._checkpoint = holdfast.Checkpoint(self._root, self._state, every="24h", keep=1)
        checkpoint, before = self._checkpoint, self._checkpoint.last_committed
        checkpoint.request_save()
        began, pauses = [], []
        while checkpoint.last_committed == before:
            began.append(time.monotonic())
            self._work()
            checkpoint.step()
            pauses.append(time.monotonic() - began[-1])
        at = pauses.index(max(pauses))
        stall = pauses[at] - statistics.median(pauses)
        total = time.monotonic() - began[at]
        os.mkdir(place)  # of its own, without the lock: it is loaded while the training goes on
        for step in Path(self._root).glob("step-*"):
            shutil.copytree(step, f"{place}/{step.name}", copy_function=os.link)
        return Took(stall, total)

    def load(self, place: str) -> None:
        with contextlib.closing(holdfast.Checkpoint(place, self._state, every="24h")) as again:
            again.resume()

    def close(self) -> None:
        if self._checkpoint is not None:
            self._checkpoint.close()
            shutil.rmtree(self._root, ignore_errors=True)


def training_step(device: torch.device) -> Callable[[], None]:
    """A few milliseconds of work: what else holds it up while a save is prepared would show."""
    if device.type == "cpu":
        return lambda: time.sleep(0.003)
    weight = torch.randn(2048, 2048, device=device)

    def work() -> None:
        for _ in range(8):
            torch.mm(weight, weight)
        torch.cuda.synchronize(device)

    return work


# --- torch's -----------------------------------------------------------------------------------


def torch_ways(state: holdfast.State) -> dict[str, Way]:
    stager = reused_stager(device_of(state))
    process = AsyncCheckpointerType.PROCESS
    return {
        "torch.save + fsync": Way(
            lambda place: torch_save(state, place), lambda place: torch_load(state, place)
        ),
        "dcp.save": Way(lambda p: dcp_save(state, p), lambda place: dcp_load(state, place)),
        "dcp.async_save, thread": Way(lambda p: dcp_async(state, p)),
        "dcp.async_save, process": Way(
            lambda p: dcp_async(state, p, async_checkpointer_type=process)
        ),
        "dcp.async_save, reused stager": Way(
            lambda p: dcp_async(state, p, async_stager=stager), close=stager.close
        ),
    }


def torch_save(state: holdfast.State, folder: str) -> Took:
    os.mkdir(folder)
    began = time.monotonic()
    with open(f"{folder}/all.pt", "wb") as file:
        torch.save(plain(state), file)
        file.flush()
        os.fsync(file.fileno())
    took = time.monotonic() - began
    return Took(took, took)


def torch_load(state: holdfast.State, folder: str) -> None:
    give(state, torch.load(f"{folder}/all.pt", map_location=device_of(state), weights_only=True))


def dcp_save(state: holdfast.State, folder: str) -> Took:
    began = time.monotonic()
    save(plain(state), checkpoint_id=folder)
    took = time.monotonic() - began
    return Took(took, took)


def dcp_load(state: holdfast.State, folder: str) -> None:
    saved = plain(state)
    load(saved, checkpoint_id=folder)
    give(state, saved)


def dcp_async(state: holdfast.State, folder: str, **options: Any) -> Took:
    began = time.monotonic()
    answer: Any = async_save(plain(state), checkpoint_id=folder, **options)
    stall = time.monotonic() - began
    getattr(answer, "upload_completion", answer).result()
    return Took(stall, time.monotonic() - began)


def reused_stager(device: torch.device) -> Any:
    """The one that keeps its memory from save to save, as ours does."""
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions  # noqa: PLC0415 - not in every torch

    on_gpu = device.type == "cuda"
    return DefaultStager(StagingOptions(on_gpu, True, False, on_gpu))


# --- the machine -------------------------------------------------------------------------------


def limits(state: holdfast.State) -> dict[str, Way]:
    """What no way can be faster than, with as many bytes."""
    assert state.model
    size = sum(p.nbytes for p in state.model.parameters()) * 3
    target, block = (torch.ones(size, dtype=torch.uint8) for _ in range(2))
    threads = len(os.sched_getaffinity(0))

    def part(number: int) -> None:
        begin, end = (size * edge // threads for edge in (number, number + 1))
        ctypes.memmove(target.data_ptr() + begin, block.data_ptr() + begin, end - begin)

    def shared() -> None:
        helpers = [threading.Thread(target=part, args=(n,)) for n in range(1, threads)]
        for helper in helpers:
            helper.start()
        part(0)
        for helper in helpers:
            helper.join()

    def whole() -> None:
        ctypes.memmove(target.data_ptr(), block.data_ptr(), size)

    found = {MEMCPY: timed(whole), SHARED: timed(shared)}
    if (device := device_of(state)).type == "cuda":
        pinned = torch.ones(size, dtype=torch.uint8, pin_memory=True)
        there = torch.ones(size, dtype=torch.uint8, device=device)

        def copy() -> None:
            pinned.copy_(there, non_blocking=True)
            torch.cuda.synchronize(device)

        found[PINNED] = timed(copy)
    return found | {DD: Way(lambda place: dd(block, place), read_back)}


def timed(copy: Callable[[], None]) -> Way:
    def way(_folder: str) -> Took:
        began = time.monotonic()
        copy()
        return Took(time.monotonic() - began, 0.0)

    return Way(way)


def dd(block: torch.Tensor, folder: str) -> Took:
    """From memory to the disk."""
    os.mkdir(folder)
    fd = os.memfd_create("bytes")
    os.ftruncate(fd, block.nbytes)
    with open(f"/proc/self/fd/{fd}", "r+b", buffering=0) as memory:
        left = memoryview(block.numpy())  # type: ignore[arg-type]
        while left:
            left = left[memory.write(left[: 1 << 30]) :]
    began = time.monotonic()
    subprocess.run(
        ["dd", f"if=/proc/{os.getpid()}/fd/{fd}", f"of={folder}/dd", "bs=16M", "conv=fsync",
         "status=none"], check=True,
    )  # fmt: skip
    took = time.monotonic() - began
    os.close(fd)
    return Took(took, took)


def read_back(folder: str) -> None:
    command = ["dd", f"if={folder}/dd", "of=/dev/null", "bs=16M", "status=none"]
    subprocess.run(command, check=True)


@contextlib.contextmanager
def group_of_one() -> Iterator[None]:
    """dcp's process needs an address to meet its parent at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port), "RANK": "0",
                   "WORLD_SIZE": "1", "LOCAL_RANK": "0", "LOCAL_WORLD_SIZE": "1"}  # fmt: skip
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()
