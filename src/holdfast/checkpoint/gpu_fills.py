"""Values out of mapped files onto GPUs: through pinned memory, by several threads.

torch copies out of memory that is not pinned at 7 GiB/s, whatever the threads; so, measured on an
H200, at 14 with two of them and at 30 to 40 with eight.
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch

CHUNK = 8 << 20
"""bytes of each of the two pinned buffers of a thread"""
ENOUGH = 64 << 20
"""bytes: for less, taking pinned memory costs more than it gains"""


class BytesForGpu(NamedTuple):
    target: torch.Tensor
    """bytes on a GPU"""
    source: int
    """an address"""


def is_for_gpu(target: torch.Tensor, source: torch.Tensor) -> bool:
    """The bytes of one, in their order, are those of the other."""
    return (
        type(target) in (torch.Tensor, torch.nn.Parameter)
        and target.is_cuda
        and source.is_cpu
        and target.dtype == source.dtype
        and target.shape == source.shape
        and target.is_contiguous()
        and source.is_contiguous()
        and not source.is_conj()
        and not source.is_neg()
        and target.numel() > 0
    )


def copy_to_gpus(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]], threads: int) -> None:
    """(target, source) each; returns when all are there. For small ones this is a plain copy."""
    by_device: dict[torch.device, list[tuple[torch.Tensor, torch.Tensor]]] = {}
    for target, source in pairs:
        by_device.setdefault(target.device, []).append((target, source))
    for device, mine in by_device.items():
        if threads < 2 or sum(source.nbytes for _, source in mine) < ENOUGH:
            for target, source in mine:
                target.copy_(source)
        else:
            _through_pinned(device, list(_chunks(mine)), threads)


def _chunks(pairs: Sequence[tuple[torch.Tensor, torch.Tensor]]) -> Iterator[BytesForGpu]:
    for target, source in pairs:
        flat = target.detach().reshape(-1).view(torch.uint8)
        for at in range(0, source.nbytes, CHUNK):
            yield BytesForGpu(flat[at : at + CHUNK], source.data_ptr() + at)


def _through_pinned(device: torch.device, chunks: Sequence[BytesForGpu], threads: int) -> None:
    queue = iter(chunks)  # a thread that is done takes the next
    before = torch.cuda.current_stream(device)

    def work(_: int) -> None:
        own = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        own.wait_stream(before)  # what had the targets' memory before may still be in use there
        buffers = [torch.empty(CHUNK, dtype=torch.uint8, pin_memory=True) for _ in range(2)]
        copied = [torch.cuda.Event() for _ in buffers]  # type: ignore[no-untyped-call]
        with torch.no_grad(), torch.cuda.stream(own):
            for number, (target, source) in enumerate(queue):
                buffer, done = buffers[number % 2], copied[number % 2]
                done.synchronize()
                ctypes.memmove(buffer.data_ptr(), source, target.numel())
                target.copy_(buffer[: target.numel()], non_blocking=True)
                done.record(own)
        own.synchronize()

    with ThreadPoolExecutor(threads, "holdfast-load") as pool:
        list(pool.map(work, range(threads)))
