"""What of a tensor this rank holds, as torch's DTensors say it, in terms of sharded_layout.py."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from torch.distributed.tensor import DTensor, Replicate

from holdfast.checkpoint.sharded_layout import LayoutGrid, Piece, ShardLayout, whole
from holdfast.errors import ConfigError

if TYPE_CHECKING:
    import torch


def local_part(tensor: torch.Tensor) -> torch.Tensor:
    """The memory of this rank."""
    if isinstance(tensor, DTensor):
        local: torch.Tensor = tensor.to_local()
        return local
    return tensor


class DTensorLayouts:
    """The layout of each DTensor; those of one mesh and placements share it."""

    def __init__(self) -> None:
        self._known: dict[tuple[object, ...], LayoutGrid] = {}

    def of(self, tensor: DTensor) -> LayoutGrid:
        key = (tensor.device_mesh, tensor.placements)
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = LayoutGrid(_layout(*key))
        return found

    def piece(self, name: str, tensor: torch.Tensor, local: torch.Tensor) -> Piece | None:
        """What this rank holds of it; None for a rank outside its mesh."""
        if not isinstance(tensor, DTensor):
            return whole(tuple(tensor.shape))
        grid, rank = self.of(tensor), tensor.device_mesh.get_rank()
        if rank not in grid:
            return None
        piece = grid.piece(tuple(tensor.shape), rank)
        if piece.sizes != tuple(local.shape):
            raise ConfigError(
                f"{name}: this rank holds {list(local.shape)} of {list(tensor.shape)}, its mesh "
                f"and placements {tensor.placements} say {list(piece.sizes)}",
                hint="make DTensors with distribute_tensor, or give from_local() their shape",
            )
        return piece


def _layout(mesh: Any, placements: Any) -> ShardLayout:
    return ShardLayout(
        tuple(mesh.mesh.shape), tuple(mesh.mesh.flatten().tolist()), tuple(map(_cut, placements))
    )


def _cut(placement: Any) -> tuple[int, int] | None:
    if isinstance(placement, Replicate):
        return None
    if placement.is_partial():
        raise ConfigError(
            f"a DTensor with the placement {placement} holds parts of sums",
            hint="redistribute it before it becomes part of the state",
        )
    return placement.dim, int(getattr(placement, "split_factor", 1))
