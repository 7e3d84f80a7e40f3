"""What one rank wrote, read again: its tree and its tensors. Verified before (choose.py)."""

from __future__ import annotations

import math
import mmap
import os
from typing import Any

import torch

from holdfast.checkpoint import safetensors_layout, tree
from holdfast.checkpoint.files import open_regular
from holdfast.checkpoint.loading import LaterCopies
from holdfast.checkpoint.staging import tensor_file, tree_file
from holdfast.checkpoint.tensors import TensorDecoder, named_dtype
from holdfast.checkpoint.tree import DamagedTreeError, Node


class RankFiles:
    """The files of one rank in a committed checkpoint."""

    def __init__(self, folder: str, rank: int) -> None:
        with open_regular(os.path.join(folder, tree_file(rank))) as file:
            document = tree.from_json(file.read())
        if not isinstance(document, dict):
            raise DamagedTreeError(f"{tree_file(rank)} is damaged: it holds no tree")
        self._document = document
        self._path = os.path.join(folder, tensor_file(rank))
        self._tensors: TensorFile | None = None

    def part(self, name: str, kind: type = dict) -> Node:
        """As it is in the tree, not decoded."""
        part = self._document.get(name)
        if not isinstance(part, kind):
            raise DamagedTreeError(f"the saved state is damaged: it has no {name!r}")
        return part

    def value(self, node: Node, *, keep_mapped: bool = False) -> Any:
        copies = LaterCopies()
        decoder = TensorDecoder(self.tensor, keep_mapped=keep_mapped, copy=copies.own)
        found = tree.decode(node, decoder.decode)
        copies.fill()
        return found

    def tensor(self, name: str) -> torch.Tensor:
        if self._tensors is None:
            self._tensors = TensorFile(self._path)
        return self._tensors.read(name)


class TensorFile:
    """A file of tensors, mapped: bytes are read from the disk when they are used.

    The mapping is private, so nothing that happens to a tensor reaches the file. It outlives
    this object for as long as a tensor is in it.
    """

    def __init__(self, path: str) -> None:
        with open_regular(path) as file:
            size = os.fstat(file.fileno()).st_size
            header = file.read(safetensors_layout.header_size(file.read(8), size))
            self._header = header
            self._slices = safetensors_layout.parse(header, size)
            self._memory = mmap.mmap(file.fileno(), size, access=mmap.ACCESS_COPY)

    @property
    def metadata(self) -> dict[str, str]:
        """The header's own texts."""
        return safetensors_layout.metadata(self._header)

    @property
    def names(self) -> list[str]:
        return list(self._slices)

    def read(self, name: str) -> torch.Tensor:
        found = self._slices.get(name)
        if found is None:
            raise DamagedTreeError(f"tensor {name!r:.80} is not in its file")
        dtype = safetensors_layout.DTYPES.get(found.code)
        if dtype is None:
            raise DamagedTreeError(f"tensor {name!r} has the unknown type {found.code!r:.40}")
        kind = named_dtype(dtype)
        if math.prod(found.shape) * kind.itemsize != found.size:
            raise DamagedTreeError(f"tensor {name!r} has {found.size} bytes, which do not make "
                                   f"{list(found.shape)} of {dtype}")  # fmt: skip
        if not found.size:
            return torch.empty(found.shape, dtype=kind)
        count = math.prod(found.shape)
        flat = torch.frombuffer(self._memory, dtype=kind, count=count, offset=found.start)
        return flat.reshape(found.shape)
