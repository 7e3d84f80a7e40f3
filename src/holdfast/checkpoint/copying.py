"""The copy that training waits for, by as many cores as we may use.

One core copies tensors of a few MiB at about 0.6 of what it reaches with one large block: the C
library's stores bypass the cache only above three quarters of it. Training is paused
meanwhile, so its other cores are free, and they make up for that.
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import NamedTuple

import torch

from holdfast.checkpoint.memory_pages import map_inner_pages
from holdfast.checkpoint.tensors import NamedTensor

SMALL = 256 << 10
"""bytes: below this, threads wait for each other's Python more than they copy"""
TURNS = 4
"""of each thread, at least; more would cut tensors that are copied faster as a whole"""


class CopyBlock(NamedTuple):
    """Bytes to copy, as ctypes.memmove takes them; it lets other threads run meanwhile."""

    target: int
    source: int
    size: int
    fresh: bool = False
    """the target has never been touched"""


class Border(NamedTuple):
    """Pinned memory is pinned in pieces, and no copy from a GPU may cross the border of two."""

    start: int
    """the address of the first piece"""
    size: int
    """bytes of each piece"""


def copy(
    views: Sequence[torch.Tensor | None],
    tensors: Sequence[NamedTensor],
    *,
    threads: int = 1,
    border: Border | None = None,
) -> None:
    """Each tensor into its view, which is None where there is nothing to copy."""
    blocks, others, devices = [], [], set()
    for view, (_, tensor) in zip(views, tensors, strict=True):
        if view is None:
            continue
        if tensor.is_cpu and tensor.is_contiguous() and not _lazy(tensor):
            size = view.numel() * view.element_size()
            blocks.append(CopyBlock(view.data_ptr(), tensor.data_ptr(), size))
        else:
            others.append((view, tensor))
            devices.add(tensor.device)
    with contextlib.ExitStack() as streams:
        waits = [streams.enter_context(_beside(device)) for device in devices]
        for view, tensor in others:
            _copy_from_device(view, tensor, border)
        copy_blocks(blocks, threads)
        for wait in waits:
            wait()


@contextlib.contextmanager
def _beside(device: torch.device) -> Iterator[Callable[[], None]]:
    """Copies from this device; what is given waits for them.

    On CUDA in a stream of their own, one for each device: they start after what the training's
    current stream was asked to do, and wait for nothing that comes later. Of other accelerators
    copies are plain ones, which return when they are done.
    """
    if device.type == "cuda":
        own = torch.cuda.Stream(device)  # type: ignore[no-untyped-call]
        own.wait_stream(torch.cuda.current_stream(device))
        with torch.cuda.stream(own):
            yield own.synchronize
    else:
        yield lambda: None


def _copy_from_device(view: torch.Tensor, tensor: torch.Tensor, border: Border | None) -> None:
    if border is None or not tensor.is_cuda:
        view.copy_(tensor, non_blocking=tensor.is_cuda)
        return
    target, source = view.reshape(-1), tensor.resolve_conj().resolve_neg().reshape(-1)
    for begin, end in cut(target.data_ptr() - border.start, target.nbytes, border.size):
        first, last = begin // view.element_size(), end // view.element_size()
        target[first:last].copy_(source[first:last], non_blocking=True)


def cut(start: int, size: int, apart: int) -> list[tuple[int, int]]:
    """(begin, end) of the parts, counted from `start`, that lie between two borders each."""
    borders = range(start // apart * apart + apart, start + size, apart)
    edges = [0, *(border - start for border in borders), size]
    return list(itertools.pairwise(edges))


def _lazy(tensor: torch.Tensor) -> bool:
    """Conjugated or negated on reading: its bytes are not its values."""
    return tensor.is_conj() or tensor.is_neg()


def copy_blocks(blocks: Sequence[CopyBlock], threads: int) -> None:
    large = pieces([block for block in blocks if block.size >= SMALL], threads)
    queue = iter(large)  # a thread that is done takes the next: a core may be slowed down by others
    helpers = [
        threading.Thread(target=_move, args=(queue,)) for _ in range(min(threads, len(large)) - 1)
    ]
    for helper in helpers:
        helper.start()
    try:
        _move(queue)
        _move(block for block in blocks if block.size < SMALL)
    finally:  # also when a signal's handler raises: no thread may read tensors that were freed
        for helper in helpers:
            helper.join()


def _move(blocks: Iterable[CopyBlock]) -> None:
    for block in blocks:
        if block.fresh:
            map_inner_pages(block.target, block.size)
        ctypes.memmove(block.target, block.source, block.size)


def pieces(blocks: Sequence[CopyBlock], threads: int) -> list[CopyBlock]:
    """The same bytes, largest first, and none so large that others would wait for it."""
    most = max(SMALL, sum(block.size for block in blocks) // (threads * TURNS))
    found = [
        CopyBlock(block.target + at, block.source + at, min(most, block.size - at), block.fresh)
        for block in blocks
        for at in range(0, block.size, most)
    ]
    return sorted(found, key=lambda piece: piece.size, reverse=True)
