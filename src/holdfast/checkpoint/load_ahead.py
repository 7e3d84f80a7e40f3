"""What a rank is going to load, copied into new memory while all ranks still verify it.

The verifying threads read every byte once, hash it and copy it to where it is going to be needed:
the state of an optimizer on the CPU, extras. Nothing of it reaches an object of the job before all
ranks have agreed on this checkpoint; one that fails is dropped, with all that was copied of it.

Bytes that go into memory the job uses already (the model) or onto a GPU are not copied ahead: they
come out of the page cache after the agreement.

Until then only descriptions are read of what is not verified: trees, by a decoder that has
bounds, and headers. They are read again afterwards, and must be the same. Whatever goes wrong here
is no error: the checkpoint is then loaded as if nothing had been done.
"""

from __future__ import annotations

import ctypes
import os
import threading
from bisect import bisect_right
from typing import TYPE_CHECKING, NamedTuple

from holdfast.analysis.checkpoints.manifest import Manifest, PieceDigest
from holdfast.checkpoint.loading import Fill, LaterCopies, is_plain_copy
from holdfast.checkpoint.memory_pages import map_inner_pages
from holdfast.checkpoint.rank_files import TensorFile
from holdfast.checkpoint.state import PreparedState, State

if TYPE_CHECKING:
    from holdfast.checkpoint.sharded import ShardedState
    from holdfast.checkpoint.sharded_tree import ShardRestorer


class PreparedResume(NamedTuple):
    """All that is loaded; only the objects of the job have not been given it."""

    state: PreparedState | None = None
    sharded: ShardRestorer | None = None


class LoadAhead:
    """One per rank and resume; it holds what it has of one checkpoint at a time."""

    def __init__(self, state: State, sharded: ShardedState | None, rank: int) -> None:
        self._state, self._sharded, self._rank = state, sharded, rank
        self._drop()

    def _drop(self) -> None:
        self._path, self._found = "", PreparedResume()
        self._later, self._taken = LaterCopies(), WantedBytes([])

    def begin(self, path: str, saved: Manifest) -> WantedBytes | None:
        """What is to be given to us while this checkpoint is verified; None for nothing."""
        self._drop()
        if saved.imported:
            return None
        later = LaterCopies()
        try:
            sharded = None
            if self._sharded is not None:
                sharded = self._sharded.prepare(path, saved.world_size, later)
            state = self._state.prepare(path, self._rank, saved.world_size, later)
            wanted = WantedBytes(_places(later))
        except Exception:  # noqa: BLE001 - damaged, or another run's: told after the verification
            return None
        self._path, self._found = path, PreparedResume(state, sharded)
        self._later, self._taken = later, wanted
        return wanted if wanted.files else None

    def finish(self, path: str) -> PreparedResume:
        """After all ranks have agreed on it, and it fits the job: complete, or empty where nothing
        was prepared."""
        found, later, taken = self._found, self._later, self._taken
        is_this = path == self._path
        self._drop()
        if not is_this or not _is_unchanged(later):
            return PreparedResume()
        done = taken.complete()
        later.fills = [fill for number, fill in enumerate(later.fills) if number not in done]
        later.fill()
        return found


def _is_unchanged(later: LaterCopies) -> bool:
    try:
        return all(file.is_unchanged() for file in later.opened)
    except (OSError, ValueError):
        return False


class WantedRange(NamedTuple):
    """Bytes of a file, and where they go."""

    start: int
    end: int
    target: int
    """an address"""
    number: int
    """of the copy"""


def _places(later: LaterCopies) -> list[tuple[str, WantedRange]]:
    """(name of the file, bytes) of all copies into new memory."""
    files = [file for file in later.opened if isinstance(file, TensorFile)]
    found = []
    for number, (target, source, fresh) in enumerate(later.fills):
        if fresh and is_plain_copy(target, source):
            at, name = _place(Fill(target, source), files)
            found.append((name, WantedRange(at, at + source.nbytes, target.data_ptr(), number)))
    return found


def _place(fill: Fill, files: list[TensorFile]) -> tuple[int, str]:
    for file in files:
        at = file.offset_of(fill.source)
        if at is not None:
            return at, os.path.basename(file.path)
    raise LookupError("a tensor of no file")


class WantedBytes:
    """Takes them from the threads that verify."""

    def __init__(self, places: list[tuple[str, WantedRange]]) -> None:
        self.files: dict[str, list[WantedRange]] = {}
        for name, wanted in sorted(places):
            before = self.files.setdefault(name, [])
            if not before or before[-1].end <= wanted.start:  # else twice the same bytes: later
                before.append(wanted)
        self._ends = {name: [each.end for each in found] for name, found in self.files.items()}
        self._left = {
            each.number: each.end - each.start for found in self.files.values() for each in found
        }
        self._lock = threading.Lock()

    def wants(self, piece: PieceDigest) -> bool:
        return any(True for _ in self._between(piece.name, piece.start, piece.end))

    def take(self, name: str, at: int, chunk: memoryview) -> None:
        memory = chunk if not chunk.readonly else memoryview(bytearray(chunk))
        begin = ctypes.addressof(ctypes.c_char.from_buffer(memory)) if len(memory) else 0
        copied = []
        for wanted in self._between(name, at, at + len(memory)):
            start, end = max(at, wanted.start), min(at + len(memory), wanted.end)
            target = wanted.target + start - wanted.start
            map_inner_pages(target, end - start)
            ctypes.memmove(target, begin + start - at, end - start)
            copied.append((wanted.number, end - start))
        with self._lock:
            for number, size in copied:
                self._left[number] -= size

    def _between(self, name: str, start: int, end: int) -> list[WantedRange]:
        found = self.files.get(name, [])
        first = bisect_right(self._ends.get(name, []), start)
        last = first
        while last < len(found) and found[last].start < end:
            last += 1
        return found[first:last]

    def complete(self) -> set[int]:
        """The numbers of the copies whose bytes have all come."""
        return {number for number, left in self._left.items() if left == 0}
