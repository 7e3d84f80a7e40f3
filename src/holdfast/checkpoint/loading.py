"""Values out of mapped files into tensors, by as many cores as this rank may use.

Most of the time goes into memory that is touched for the first time, which one core does slowly.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import torch

from holdfast.checkpoint import tensors
from holdfast.checkpoint.copying import CopyBlock, copy_blocks
from holdfast.checkpoint.cores import ranks_here, threads_for


class Fill(NamedTuple):
    target: torch.Tensor
    source: torch.Tensor


class LaterCopies:
    """Makes tensors while a tree is decoded; their values come with `fill`."""

    def __init__(self) -> None:
        self._fills: list[Fill] = []

    def own(self, tensor: torch.Tensor, kind: str) -> torch.Tensor:
        """As `tensors.own`, to be filled."""
        if kind != "cpu":
            return tensors.own(tensor, kind)
        target = torch.empty_like(tensor)
        self._fills.append(Fill(target, tensor))
        return target

    def fill(self) -> None:
        fill_all(self._fills)
        self._fills.clear()


def fill_all(fills: Sequence[Fill], *, threads: int = 0) -> None:
    """`threads` 0: as many as this rank may use beside its peers."""
    blocks = []
    for target, source in fills:
        if _is_plain_copy(target, source):
            blocks.append(CopyBlock(target.data_ptr(), source.data_ptr(), source.nbytes))
        else:
            target.copy_(source)
    copy_blocks(blocks, threads or threads_for(ranks_here()))


def _is_plain_copy(target: torch.Tensor, source: torch.Tensor) -> bool:
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
