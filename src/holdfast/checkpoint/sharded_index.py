"""Where each tensor of a sharded checkpoint is: the index in the tree of rank 0.

    {"layouts": [[mesh, ranks, cuts], …], "tensors": {name: [dtype, size, layout], …}}

The files and places of all pieces follow from it by arithmetic (sharded_layout.py), so that it
stays small, and every rank of a large job can read all of it. Earlier checkpoints list the pieces:

    {name: [dtype, size, [[rank, offsets, sizes], …]], …}
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import product

import msgspec

from holdfast.checkpoint.sharded_layout import (
    LayoutGrid,
    Overlap,
    Piece,
    RowRange,
    Shape,
    ShardLayout,
    block,
)
from holdfast.checkpoint.tree import DamagedTreeError, Node


class SavedTensor(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    size: Shape
    layout: int


class ShardIndex(Mapping[str, SavedTensor]):
    """Name -> what it is; and where its bytes are."""

    def __init__(
        self,
        tensors: dict[str, SavedTensor],
        layouts: Sequence[ShardLayout],
        listed: Sequence[ListedPieces] = (),
    ) -> None:
        self._tensors = tensors
        self.layouts = tuple(layouts)
        self._where: list[LayoutGrid | ListedPieces] = [*map(LayoutGrid, layouts), *listed]
        if any(not 0 <= each.layout < len(self._where) for each in tensors.values()):
            raise ValueError("a tensor without a layout")

    def __getitem__(self, name: str) -> SavedTensor:
        return self._tensors[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._tensors)

    def __len__(self) -> int:
        return len(self._tensors)

    def overlaps(self, name: str, wanted: Piece) -> Iterator[Overlap]:
        """The stored blocks that make up a piece of it."""
        saved = self._tensors[name]
        return self._where[saved.layout].overlaps(name, saved.size, wanted)

    def to_json(self) -> bytes:
        return msgspec.json.encode({"layouts": self.layouts, "tensors": self._tensors})

    @classmethod
    def from_node(cls, node: Node) -> ShardIndex:
        """Raises DamagedTreeError for what we did not write."""
        try:
            if isinstance(node, dict) and isinstance(node.get("layouts"), list):
                read = msgspec.convert(node, _Index)
                found = cls(read.tensors, read.layouts)
            else:
                found = _from_lists(msgspec.convert(node, dict[str, _ListedTensor]))
        except (msgspec.ValidationError, ValueError) as odd:
            raise DamagedTreeError(f"the saved state is damaged: {odd}") from odd
        return found


class _Index(msgspec.Struct):
    layouts: tuple[ShardLayout, ...]
    tensors: dict[str, SavedTensor]


# --- earlier checkpoints -----------------------------------------------------------------------


class ListedPiece(msgspec.Struct, frozen=True, array_like=True):
    """A piece of a tensor in the file of one rank."""

    rank: int
    offsets: Shape
    sizes: Shape


class _ListedTensor(msgspec.Struct, frozen=True, array_like=True):
    dtype: str
    size: Shape
    pieces: tuple[ListedPiece, ...]


def _from_lists(tensors: dict[str, _ListedTensor]) -> ShardIndex:
    listed = [ListedPieces(each.pieces) for each in tensors.values()]
    found = {
        name: SavedTensor(each.dtype, each.size, number)
        for number, (name, each) in enumerate(tensors.items())
    }
    return ShardIndex(found, (), listed)


class ListedPieces:
    """The pieces of one tensor."""

    def __init__(self, pieces: Sequence[ListedPiece]) -> None:
        self._pieces = [(each.rank, block(each.offsets, each.sizes)) for each in pieces]

    def overlaps(self, _: str, size: Shape, wanted: Piece) -> Iterator[Overlap]:
        assert len(size) == len(wanted.sides)
        for rank, stored in self._pieces:
            yield from _common(rank, stored, wanted)


def _common(rank: int, stored: Piece, wanted: Piece) -> Iterator[Overlap]:
    sides = [
        [
            (source.at + low - source.start, target.at + low - target.start, high - low)
            for source in have
            for target in want
            if (low := max(source.start, target.start)) < (high := min(_end(source), _end(target)))
        ]
        for have, want in zip(stored.sides, wanted.sides, strict=True)
    ]
    for blocks in product(*sides):
        sources, targets, lengths = zip(*blocks, strict=True) if blocks else ((), (), ())
        yield Overlap(rank, stored.offsets, stored.sizes, sources, targets, lengths)


def _end(run: RowRange) -> int:
    return run.start + run.length
