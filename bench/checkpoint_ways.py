"""Ways to save the same state: ours, torch's own, and what the machine could do at best."""

from __future__ import annotations

import contextlib
import ctypes
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import torch
import torch.distributed as dist
from torch.distributed.checkpoint.state_dict_saver import AsyncCheckpointerType, async_save, save

from holdfast.checkpoint.messages import SaveOrder
from holdfast.checkpoint.staging import StagingBuffer
from holdfast.checkpoint.state import State
from holdfast.checkpoint.writer_process import WriterProcess

MEMCPY = "memcpy, one block, 1 thread"
SHARED = "memcpy, one block, our threads"
EACH = "memcpy, each tensor, 1 thread"
OURS, DD = "holdfast", "dd conv=fsync, same bytes"


class Took(NamedTuple):
    stall: float
    total: float
    """until it is on the disk; 0 for what never goes there"""


Way = Callable[[str], Took]
"""saves into the new folder of that name"""


def all_ways(state: State, buffer: StagingBuffer, stack: contextlib.ExitStack) -> dict[str, Way]:
    writer = stack.enter_context(contextlib.closing(WriterProcess()))
    stager = stack.enter_context(contextlib.closing(reused_stager()))
    kind = AsyncCheckpointerType.PROCESS
    saving: list[Way] = [
        ours(state, buffer, writer),
        lambda folder: torch_save(state, folder),
        lambda folder: dcp_save(state, folder),
        lambda folder: dcp_async(state, folder),
        lambda folder: dcp_async(state, folder, async_checkpointer_type=kind),
        lambda folder: dcp_async(state, folder, async_stager=stager),
    ]
    return {**dict(zip(WAYS, saving, strict=True)), DD: dd(buffer)}


WAYS = [
    OURS, "torch.save + fsync", "dcp.save", "dcp.async_save, thread", "dcp.async_save, process",
    "dcp.async_save, reused stager",
]  # fmt: skip


def copies(state: State, threads: int) -> dict[str, Way]:
    """The C library's own copy into memory that was touched before."""
    tensors = [named.tensor for named in state.capture(0).tensors]
    size = sum(tensor.nbytes for tensor in tensors)
    target, block = (torch.ones(size, dtype=torch.uint8) for _ in range(2))

    def each() -> None:
        at = target.data_ptr()
        for tensor in tensors:
            ctypes.memmove(at, tensor.data_ptr(), tensor.nbytes)
            at += tensor.nbytes

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

    return {MEMCPY: timed(whole), SHARED: timed(shared), EACH: timed(each)}


def timed(copy: Callable[[], None]) -> Way:
    def way(_folder: str) -> Took:
        began = time.monotonic()
        copy()
        return Took(time.monotonic() - began, 0.0)

    return way


def ours(state: State, buffer: StagingBuffer, writer: WriterProcess) -> Way:
    def way(folder: str) -> Took:
        os.mkdir(folder)
        began = time.monotonic()
        captured = state.capture(0)
        staged = buffer.stage(captured.tensors, captured.text)
        asked = SaveOrder(folder=folder, step=1, token="a0", rank=0, world_size=1,
                     pieces=staged.pieces(0, buffer.fd))  # fmt: skip
        writer.ask(asked, (buffer.fd,))
        stall = time.monotonic() - began
        answer = writer.answer(timeout=None)
        if answer is None or answer.committed is None:
            raise RuntimeError(f"the save failed: {answer}")
        return Took(stall, time.monotonic() - began)

    return way


def dd(buffer: StagingBuffer) -> Way:
    """Of the bytes that were staged last, from memory to the disk."""

    def way(folder: str) -> Took:
        os.mkdir(folder)
        source = f"if=/proc/{os.getpid()}/fd/{buffer.fd}"
        began = time.monotonic()
        subprocess.run(
            ["dd", source, f"of={folder}/dd", "bs=16M", "conv=fsync", "status=none"], check=True
        )
        took = time.monotonic() - began
        return Took(took, took)

    return way


def plain(state: State) -> dict[str, Any]:
    assert state.model
    assert state.optimizer
    return {"model": state.model.state_dict(), "optimizer": state.optimizer.state_dict()}


def torch_save(state: State, folder: str) -> Took:
    os.mkdir(folder)
    began = time.monotonic()
    with open(f"{folder}/all.pt", "wb") as file:
        torch.save(plain(state), file)
        file.flush()
        os.fsync(file.fileno())
    took = time.monotonic() - began
    return Took(took, took)


def dcp_save(state: State, folder: str) -> Took:
    began = time.monotonic()
    save(plain(state), checkpoint_id=folder)
    took = time.monotonic() - began
    return Took(took, took)


def dcp_async(state: State, folder: str, **options: Any) -> Took:
    began = time.monotonic()
    answer: Any = async_save(plain(state), checkpoint_id=folder, **options)
    stall = time.monotonic() - began
    getattr(answer, "upload_completion", answer).result()
    return Took(stall, time.monotonic() - began)


def reused_stager() -> Any:
    """The one that keeps its memory from save to save, as ours does."""
    from torch.distributed.checkpoint.staging import DefaultStager, StagingOptions  # noqa: PLC0415 - not in every torch

    return DefaultStager(StagingOptions(False, True, False, False))


@contextlib.contextmanager
def group_of_one() -> Iterator[None]:
    """dcp's process needs an address to meet its parent at."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ |= {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                   "RANK": "0", "WORLD_SIZE": "1"}  # fmt: skip
    dist.init_process_group("gloo")
    yield
    dist.destroy_process_group()
