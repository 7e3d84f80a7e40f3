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

import contextlib
import hashlib
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import torch

from holdfast.analysis.checkpoints.manifest import FileEntry
from holdfast.checkpoint import copying
from holdfast.checkpoint.messages import FilePiece
from holdfast.checkpoint.safetensors_layout import FileLayout, TensorEntry, lay_out
from holdfast.checkpoint.tensors import NamedTensor
from holdfast.errors import EnvironmentFailure
from holdfast.system.cgroup_files import number, read, table
from holdfast.system.cgroup_tree import find
from holdfast.text import size as in_words

_STEP = 4 << 20
"""bytes taken at once: the kernel starts a piece again when a signal comes"""
_GRAIN = 1 << 20
"""capacity grows in these, so that a tree of a few more bytes does not move the buffer"""
_SPARE = 1 << 20
"""bytes for what may be more at the first save than when its memory was taken"""


MARGIN = 0.9
"""the share of what is free that we would take"""


class NoRoomError(EnvironmentFailure):
    """There is not enough memory for a copy of the state."""


# --- is there memory for a copy? ---------------------------------------------------------------


def memory_room(root: str = "/") -> int | None:
    """Bytes that could still be used here; None where nothing tells.

    Memory shared through a memfd counts as used by this process's cgroup. Asking the kernel for
    too much of it does not fail politely: the OOM killer ends the rank.
    """
    sides = [_machine(root), *_cgroups(root)]
    return min((side for side in sides if side is not None), default=None)


def _machine(root: str) -> int | None:
    for line in read(f"{root}/proc", "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            kibibytes = number(line.split()[1])
            return None if kibibytes is None else kibibytes * 1024
    return None


def _cgroups(root: str) -> list[int | None]:
    """Of every level above us that sets a limit; the page cache counts as free."""
    try:
        memory = find("memory", root)
    except (LookupError, OSError):
        return []
    if memory is None:
        return []
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        if memory.version == 1
        else ("memory.max", "memory.current", "")
    )
    return [_level(folder, *names) for folder in memory.folders]


def _level(folder: str, limit_file: str, used_file: str, prefix: str) -> int | None:
    limit, used = number(read(folder, limit_file)), number(read(folder, used_file))
    if limit is None or used is None:
        return None
    stat = table(read(folder, "memory.stat"))
    cache = stat.get(f"{prefix}active_file", 0) + stat.get(f"{prefix}inactive_file", 0)
    return max(0, limit - max(0, used - cache))


# --- the copy ----------------------------------------------------------------------------------


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
    """Memory shared with the writer. `peers`: ranks on this machine that take as much."""

    def __init__(self, *, peers: int = 1, room: Callable[[], int | None] = memory_room) -> None:
        self.fd = os.memfd_create("holdfast-state")
        self.capacity = 0
        self.threads = copying.threads_for(peers)
        self._peers, self._room = peers, room
        self._map: mmap.mmap | None = None
        self._warming: threading.Thread | None = None
        self._closing = False
        self._pinned = 0
        self._entries: list[TensorEntry] = []
        self._layout = lay_out([])
        self._views: list[torch.Tensor | None] = []

    def stage(self, tensors: Sequence[NamedTensor], text: bytes = b"") -> StagedState:
        """Copies everything; returns when the tensors may change again."""
        began = time.monotonic()
        layout = self._lay_out(tensors, len(text))
        self._pin(_gpu(tensors))
        copying.copy(self._views, tensors, threads=self.threads)
        size = layout.size if tensors else 0
        assert self._map is not None
        self._map[: len(layout.header)] = layout.header
        at = _text_at(layout)
        self._map[at : at + len(text)] = text
        return StagedState(size, at, len(text), time.monotonic() - began)

    def warm(self, tensors: Sequence[NamedTensor], text: int) -> None:
        """Takes what a save of these will need, in the background: cold memory costs a stall
        of many copies. A save that comes earlier waits for the rest."""
        size = _text_at(lay_out([named.entry() for named in tensors])) + text + _SPARE
        if wanted := self._more_for(size):
            self._warming = threading.Thread(
                target=self._warm, args=(wanted, _gpu(tensors)), name="holdfast-memory", daemon=True
            )
            self._warming.start()

    def reserve(self, size: int) -> None:
        """Takes the memory here and now, or waits for the rest of it."""
        if wanted := self._more_for(size):
            self._take(wanted)

    def settle(self) -> None:
        """Waits for the memory that is being taken."""
        if self._warming is not None:
            self._warming.join()
            self._warming = None

    def close(self) -> None:
        self._closing = True
        self.settle()
        self._let_go()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _more_for(self, size: int) -> int:
        """The capacity it takes; 0 when there is enough."""
        self.settle()
        if size <= self.capacity and self._map is not None:
            return 0
        wanted = max(self.capacity, -(-max(size, 1) // _GRAIN) * _GRAIN)
        self._refuse_if_too_much(wanted - self.capacity)
        self._let_go()
        return wanted

    def _warm(self, wanted: int, gpu: torch.device | None) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the training's
        with contextlib.suppress(NoRoomError):  # the save will meet it, too, and go another way
            self._take(wanted)
            self._pin(gpu)

    def _take(self, wanted: int) -> None:
        """Nothing here holds Python up for longer than a moment."""
        try:
            for at in range(self.capacity, wanted, _STEP):
                if self._closing:
                    return
                os.posix_fallocate(self.fd, at, min(_STEP, wanted - at))
            memory = mmap.mmap(self.fd, wanted)
        except OSError as problem:
            os.ftruncate(self.fd, self.capacity)
            why = os.strerror(problem.errno or 0)
            raise NoRoomError(f"{in_words(wanted)} of shared memory: {why}") from problem
        # Now it is ours, but not in our page table. Nothing is changed: it may be being written.
        whole = torch.frombuffer(memory, dtype=torch.uint8)
        for at in range(0, wanted, _STEP):
            if self._closing:
                return
            whole[at : at + _STEP : mmap.PAGESIZE].add_(0)
        self._map, self.capacity = memory, wanted

    def _lay_out(self, tensors: Sequence[NamedTensor], text: int) -> FileLayout:
        """Names and shapes rarely change: then the views of last time are right."""
        entries = [named.entry() for named in tensors]
        layout = self._layout if entries == self._entries else lay_out(entries)
        self.reserve(_text_at(layout) + text)
        if not self._views or layout is not self._layout:
            assert self._map is not None
            self._views = [_view(self._map, each, layout.starts[each.name]) for each in tensors]
        self._entries, self._layout = entries, layout
        return layout

    def _refuse_if_too_much(self, more: int) -> None:
        room = self._room()
        if room is not None and more * self._peers > room * MARGIN:
            each = f" on each of {self._peers} ranks" if self._peers > 1 else ""
            raise NoRoomError(
                f"a copy of the state takes {in_words(more)}{each}, {in_words(room)} is free"
            )

    def _pin(self, gpu: torch.device | None) -> None:
        """Copies from a GPU run at full speed, and side by side, into pinned memory only."""
        if self._pinned or gpu is None or self._map is None:
            return
        address = torch.frombuffer(self._map, dtype=torch.uint8).data_ptr()
        with torch.cuda.device(gpu):  # a new thread would start a context on the first one
            if not int(_cuda().cudaHostRegister(address, self.capacity, 0)):
                self._pinned = address

    def _let_go(self) -> None:
        """Of the mapping; tensors that view it keep it until they go."""
        if self._pinned:
            _cuda().cudaHostUnregister(self._pinned)
        self._pinned, self._map, self._views = 0, None, []


def _text_at(layout: FileLayout) -> int:
    """At a whole page: the writer then goes past the page cache (messages.py)."""
    return -(-layout.size // mmap.PAGESIZE) * mmap.PAGESIZE


def _cuda() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]


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
    digest = hashlib.sha256()
    with open(path, "xb", buffering=0) as file:
        for chunk in _chunks(layout, tensors):
            digest.update(chunk)
            left = chunk
            while left:
                left = left[file.write(left) :]
        os.fsync(file.fileno())
    name = os.path.basename(path)
    return FileEntry(name=name, size=layout.size, sha256=digest.hexdigest())


def _chunks(layout: FileLayout, tensors: Sequence[NamedTensor]) -> Iterator[memoryview]:
    """The bytes of the file in order; a strided or GPU tensor is copied, one at a time."""
    yield memoryview(layout.header)
    for _, tensor in sorted(tensors, key=lambda each: layout.starts[each.name]):
        flat = tensor.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        if flat.numel():
            raw = memoryview(flat.view(torch.uint8).numpy())  # type: ignore[arg-type]
            yield from (raw[at : at + _STEP] for at in range(0, len(raw), _STEP))
