"""Values out of mapped files into tensors, by as many cores as this rank may use.

Most of the time goes into memory that is touched for the first time, which one core does slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol

import torch

from holdfast.checkpoint import tensors
from holdfast.checkpoint.copying import CopyBlock, copy_blocks
from holdfast.checkpoint.cores import ranks_here, threads_for
from holdfast.checkpoint.gpu_fills import copy_to_gpus, is_for_gpu


class Fill(NamedTuple):
    target: torch.Tensor
    source: torch.Tensor
    fresh: bool = False
    """the target is new memory, which nothing of the job uses yet"""


class ReadFile(Protocol):
    """A file that was opened for what it describes; its values are read later."""

    def is_unchanged(self) -> bool:
        """Whether the description is on the disk as it was read."""
        ...


class LaterCopies:
    """Makes tensors while a tree is decoded; their values come with `fill`."""

    def __init__(self) -> None:
        self.fills: list[Fill] = []
        self.opened: list[ReadFile] = []

    def own(self, tensor: torch.Tensor, kind: str) -> torch.Tensor:
        """As `tensors.own`, to be filled."""
        target = torch.empty_like(tensor, device=tensors.device_for(kind))
        self.fills.append(Fill(target, tensor, fresh=True))
        return target

    def fill(self) -> None:
        with torch.no_grad():
            fill_all(self.fills)
        self.fills.clear()


def fill_all(fills: Sequence[Fill], *, threads: int = 0) -> None:
    """`threads` 0: as many as this rank may use beside its peers."""
    blocks, for_gpus = [], []
    threads = threads or threads_for(ranks_here())
    for target, source, fresh in fills:
        if is_plain_copy(target, source):
            blocks.append(CopyBlock(target.data_ptr(), source.data_ptr(), source.nbytes, fresh))
        elif is_for_gpu(target, source):
            for_gpus.append((target, source))
        else:
            target.copy_(source)
    copy_blocks(blocks, threads)
    copy_to_gpus(for_gpus, threads)


def is_plain_copy(target: torch.Tensor, source: torch.Tensor) -> bool:
    """The bytes of one, in their order, are those of the other."""
    return (
        type(target) in (torch.Tensor, torch.nn.Parameter)
        and target.is_cpu
        and source.is_cpu
        and target.dtype == source.dtype
        and target.shape == source.shape
        and target.is_contiguous()
        and source.is_contiguous()
        and target.numel() > 0
    )
