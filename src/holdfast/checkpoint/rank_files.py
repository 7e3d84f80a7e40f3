"""What one rank wrote, read again: its tree and its tensors.

Verified before (choose.py), or not used before it is (load_ahead.py): then `later` is given.
"""

from __future__ import annotations

import hashlib
import io
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
    """The files of one rank in a committed checkpoint.

    `later`: values get their bytes when it is filled. Otherwise at once.
    """

    def __init__(self, folder: str, rank: int, later: LaterCopies | None = None) -> None:
        self._tree = os.path.join(folder, tree_file(rank))
        text = self._text()
        self._digest = hashlib.sha256(text).digest()
        document = tree.from_json(text)
        if not isinstance(document, dict):
            raise DamagedTreeError(f"{tree_file(rank)} is damaged: it holds no tree")
        self._document = document
        self._path = os.path.join(folder, tensor_file(rank))
        self._tensors: TensorFile | None = None
        self._later = later
        if later is not None:
            later.opened.append(self)

    def _text(self) -> bytes:
        with open_regular(self._tree) as file:
            return file.read()

    def is_unchanged(self) -> bool:
        """Is the tree on the disk as it was read?"""
        return hashlib.sha256(self._text()).digest() == self._digest

    def part(self, name: str, kind: type = dict) -> Node:
        """As it is in the tree, not decoded."""
        part = self._document.get(name)
        if not isinstance(part, kind):
            raise DamagedTreeError(f"the saved state is damaged: it has no {name!r}")
        return part

    def value(self, node: Node, *, keep_mapped: bool = False, on_cpu: bool = False) -> Any:
        """`on_cpu`: wherever it was when it was saved."""
        copies = self._later or LaterCopies()

        def copy(tensor: torch.Tensor, kind: str) -> torch.Tensor:
            return copies.own(tensor, "cpu" if on_cpu else kind)

        decoder = TensorDecoder(self.tensor, keep_mapped=keep_mapped, copy=copy)
        found = tree.decode(node, decoder.decode)
        if self._later is None:
            copies.fill()
        return found

    def decoder(self, *, keep_mapped: bool = False) -> TensorDecoder:
        """For nodes that hold more than values."""
        copy = self._later.own if self._later is not None else None
        return TensorDecoder(self.tensor, keep_mapped=keep_mapped, copy=copy)

    def tensor(self, name: str) -> torch.Tensor:
        if self._tensors is None:
            self._tensors = TensorFile(self._path)
            if self._later is not None:
                self._later.opened.append(self._tensors)
        return self._tensors.read(name)


class TensorFile:
    """A file of tensors, mapped: bytes are read from the disk when they are used.

    The mapping is private, so nothing that happens to a tensor reaches the file. It outlives
    this object for as long as a tensor is in it.
    """

    def __init__(self, path: str) -> None:
        self.path = path
        with open_regular(path) as file:
            self._size = os.fstat(file.fileno()).st_size
            self._header = self._read_header(file)
            self._slices = safetensors_layout.parse(self._header, self._size)
            self._memory = mmap.mmap(file.fileno(), self._size, access=mmap.ACCESS_COPY)

    def _read_header(self, file: io.FileIO) -> bytes:
        return file.read(safetensors_layout.header_size(file.read(8), self._size))

    def is_unchanged(self) -> bool:
        """Is the header on the disk as it was read?"""
        with open_regular(self.path) as file:
            return self._read_header(file) == self._header

    def offset_of(self, tensor: torch.Tensor) -> int | None:
        """Where in the file the first byte of a tensor is; None for one of another file."""
        begin = torch.frombuffer(self._memory, dtype=torch.uint8, count=1).data_ptr()
        at = tensor.data_ptr() - begin
        return at if 0 <= at < self._size else None

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
