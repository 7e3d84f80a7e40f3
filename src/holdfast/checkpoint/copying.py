"""The copy that training waits for: as many cores as we may use, each with an equal share.

One core copies tensors of a few MiB at about 0.6 of what it reaches with one large block: the C
library's stores bypass the cache only above three quarters of it. Training stands still
meanwhile, so its other cores are free, and they make up for that.
"""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Sequence
from typing import NamedTuple

import torch

from holdfast.checkpoint.tensors import Named
from holdfast.probe.cgroup_files import quota
from holdfast.probe.cgroup_tree import find

MOST = 8
"""threads: memory gives no more to further ones"""
SMALL = 256 << 10
"""bytes: below this, threads wait for each other's Python more than they copy"""


class Block(NamedTuple):
    """Bytes to copy, as ctypes.memmove takes them; it lets other threads run meanwhile."""

    target: int
    source: int
    size: int


def threads_for(peers: int) -> int:
    """For one of so many ranks here that copy at the same time."""
    return max(1, min(MOST, _cores() // peers))


def _cores() -> int:
    """That this process may use: its affinity, and the quota of its cgroup."""
    allowed = len(os.sched_getaffinity(0))
    try:
        cpu = find("cpu")
        limit = quota(cpu) if cpu else None
    except (LookupError, OSError):
        limit = None
    return allowed if limit is None else min(allowed, int(limit.cores))


def copy(
    views: Sequence[torch.Tensor | None], tensors: Sequence[Named], *, threads: int = 1
) -> None:
    """Each tensor into its view, which is None where there is nothing to copy."""
    blocks, devices = [], set()
    for view, (_, tensor) in zip(views, tensors, strict=True):
        if view is None:
            continue
        if tensor.is_cpu and tensor.is_contiguous() and not _lazy(tensor):
            size = view.numel() * view.element_size()
            blocks.append(Block(view.data_ptr(), tensor.data_ptr(), size))
        else:
            view.copy_(tensor, non_blocking=True)
            devices.add(tensor.device)
    _copy_blocks(blocks, threads)
    for device in devices:
        if device.type == "cuda":
            torch.cuda.current_stream(device).synchronize()
        elif device.type != "cpu":
            torch.accelerator.synchronize(device)


def _lazy(tensor: torch.Tensor) -> bool:
    """Conjugated or negated on reading: its bytes are not its values."""
    return tensor.is_conj() or tensor.is_neg()


def _copy_blocks(blocks: Sequence[Block], threads: int) -> None:
    mine, *others = shares([block for block in blocks if block.size >= SMALL], threads)
    mine += [block for block in blocks if block.size < SMALL]
    helpers = [threading.Thread(target=_move, args=(share,)) for share in others]
    for helper in helpers:
        helper.start()
    try:
        _move(mine)
    finally:  # also when a signal's handler raises: nobody may read tensors that are let go
        for helper in helpers:
            helper.join()


def _move(blocks: Sequence[Block]) -> None:
    for block in blocks:
        ctypes.memmove(*block)


def shares(blocks: Sequence[Block], count: int) -> list[list[Block]]:
    """At least one, at most `count`, of equal size but for rounding; blocks are cut for it."""
    total = sum(block.size for block in blocks)
    each = max(SMALL, -(-total // count))
    found: list[list[Block]] = [[]]
    room = each
    for block in blocks:
        done = 0
        while done < block.size:
            if not room:
                found.append([])
                room = each
            size = min(room, block.size - done)
            found[-1].append(Block(block.target + done, block.source + done, size))
            done, room = done + size, room - size
    return found
