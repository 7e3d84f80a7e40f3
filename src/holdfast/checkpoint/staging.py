"""The only pause: tensors are copied into memory that the writer process shares.

    buffer = Buffer()                       before the writer starts: it inherits buffer.fd
    buffer.warm(tensors, len(text))         takes the memory, while training continues
    staged = buffer.stage(tensors, text)    the stall; reused from save to save
    staged.pieces(rank, buffer.fd)          what to tell the writer
    write_directly(path, tensors)           where NoRoomError says that there is no memory

The memory is a memfd, laid out exactly as the file: the writer writes it as it is, so there
is one copy of the state and no more. From telling the writer until its answer the buffer must
not be staged into again.
"""

from __future__ import annotations

import mmap
import os
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch

from holdfast.analysis.checkpoints.manifest import FileEntry
from holdfast.checkpoint import copying
from holdfast.checkpoint.cores import threads_for
from holdfast.checkpoint.files import PieceDigests
from holdfast.checkpoint.memory_room import memory_room
from holdfast.checkpoint.messages import FilePiece
from holdfast.checkpoint.safetensors_layout import FileLayout, TensorEntry, lay_out
from holdfast.checkpoint.shared_memory import SharedMemory
from holdfast.checkpoint.tensors import NamedTensor

_SPARE = 1 << 20
"""bytes for what may be more at the first save than when its memory was taken"""
_STEP = 4 << 20
"""bytes written at once where there is no copy"""


@dataclass(frozen=True)
class StagedState:
    """What is in the buffer: the file of tensors, then the text."""

    size: int
    """bytes of the file of tensors; 0 when there are none"""
    text_at: int
    text_size: int
    seconds: float

    def pieces(self, rank: int, fd: int) -> tuple[FilePiece, ...]:
        text = FilePiece(name=tree_file(rank), fd=fd, offset=self.text_at, size=self.text_size)
        tensors = FilePiece(name=tensor_file(rank), fd=fd, offset=0, size=self.size)
        return (tensors, text) if self.size else (text,)


def tensor_file(rank: int) -> str:
    return f"rank-{rank}.safetensors"


def tree_file(rank: int) -> str:
    return f"rank-{rank}.json"


class StagingBuffer:
    """Memory shared with the writer. `peers`: ranks on this machine that copy as much."""

    def __init__(self, *, peers: int = 1, room: Callable[[], int | None] = memory_room) -> None:
        self.threads = threads_for(peers)
        self._memory = SharedMemory(room=room)
        self._entries: list[TensorEntry] = []
        self._layout = lay_out([])
        self._views: list[torch.Tensor | None] = []

    @property
    def fd(self) -> int:
        return self._memory.fd

    @property
    def capacity(self) -> int:
        return self._memory.capacity

    @property
    def busy(self) -> bool:
        """Memory is being taken: a save would have to wait for it."""
        return self._memory.busy

    @property
    def not_pinned(self) -> str:
        return self._memory.not_pinned

    def stage(self, tensors: Sequence[NamedTensor], text: bytes = b"") -> StagedState:
        """Copies everything; returns when the tensors may change again."""
        began = time.monotonic()
        layout = self._lay_out(tensors, len(text))
        copying.copy(self._views, tensors, threads=self.threads, border=self._border())
        size = layout.size if tensors else 0
        memory = self._memory.map
        assert memory is not None
        memory[: len(layout.header)] = layout.header
        at = _text_at(layout)
        memory[at : at + len(text)] = text
        return StagedState(size, at, len(text), time.monotonic() - began)

    def warm(self, tensors: Sequence[NamedTensor], text: int) -> None:
        """Takes what a save of these will need, in the background: cold memory costs a stall
        of many copies. A save that comes earlier waits for the rest."""
        size = _text_at(lay_out([named.entry() for named in tensors])) + text + _SPARE
        self._take(size, _gpu(tensors))

    def reserve(self, size: int, gpu: torch.device | None = None) -> None:
        """Takes the memory now, or waits for the rest of it."""
        self._take(size, gpu)
        self._memory.wait()
        self._take(size, gpu)  # raises what went wrong

    def settle(self) -> None:
        """Waits for the memory that is being taken."""
        self._memory.wait()

    def close(self) -> None:
        self._memory.close()
        self._views = []

    def _take(self, size: int, gpu: torch.device | None) -> None:
        before = self._memory.map
        self._memory.take(size, gpu)
        if self._memory.map is not before:
            self._views = []

    def _border(self) -> copying.Border | None:
        memory = self._memory
        return copying.Border(memory.address, memory.border) if memory.border else None

    def _lay_out(self, tensors: Sequence[NamedTensor], text: int) -> FileLayout:
        """Names and shapes rarely change: then the views of last time are right."""
        entries = [named.entry() for named in tensors]
        layout = self._layout if entries == self._entries else lay_out(entries)
        self.reserve(_text_at(layout) + text, _gpu(tensors))
        if not self._views or layout is not self._layout:
            memory = self._memory.map
            assert memory is not None
            self._views = [_view(memory, each, layout.starts[each.name]) for each in tensors]
        self._entries, self._layout = entries, layout
        return layout


def _text_at(layout: FileLayout) -> int:
    """At a whole page: the writer then goes past the page cache (messages.py)."""
    return -(-layout.size // mmap.PAGESIZE) * mmap.PAGESIZE


def _gpu(tensors: Sequence[NamedTensor]) -> torch.device | None:
    return next((each.tensor.device for each in tensors if each.tensor.is_cuda), None)


def _view(memory: mmap.mmap, named: NamedTensor, start: int) -> torch.Tensor | None:
    tensor = named.tensor
    if not tensor.numel():
        return None
    flat = torch.frombuffer(memory, dtype=tensor.dtype, count=tensor.numel(), offset=start)
    return flat.reshape(tensor.shape)


def write_directly(path: str, tensors: Sequence[NamedTensor]) -> FileEntry:
    """The file of tensors, written and synced by this process while the training waits."""
    layout = lay_out([named.entry() for named in tensors])
    digests = PieceDigests()
    with open(path, "xb", buffering=0) as file:
        for chunk in _chunks(layout, tensors):
            digests.update(chunk)
            left = chunk
            while left:
                left = left[file.write(left) :]
        os.fsync(file.fileno())
    name = os.path.basename(path)
    return FileEntry(name=name, size=layout.size, sha256=digests.hexdigests())


def _chunks(layout: FileLayout, tensors: Sequence[NamedTensor]) -> Iterator[memoryview]:
    """The bytes of the file in order; a strided or GPU tensor is copied, one at a time."""
    yield memoryview(layout.header)
    for _, tensor in sorted(tensors, key=lambda each: layout.starts[each.name]):
        flat = tensor.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        if flat.numel():
            raw = memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]
            yield from (raw[at : at + _STEP] for at in range(0, len(raw), _STEP))
