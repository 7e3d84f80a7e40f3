"""Memory that the writer process shares: taken, mapped and pinned while training continues.

    memory = SharedMemory()
    memory.take(size, gpu)    a thread does it; raises NoRoomError, also that of the time before
    memory.wait()             until it is there

Measured on a machine with an H200, 8 GiB: to take the pages 1.5 s, to map them 3 s, to pin them
0.4 s, none of it on the training's account except for the last: the driver holds a lock while it
pins, so that the next kernel waits. Pinned in small pieces with a pause after each, a step of
2.6 ms takes 3.4 ms at most instead of 374 ms once. A copy must not cross the border of two pieces
(the driver refuses it): `border`.
"""

from __future__ import annotations

import errno
import mmap
import os
import signal
import threading
import time
from collections.abc import Callable
from typing import Any

import torch

from holdfast.checkpoint.memory_pages import map_pages
from holdfast.checkpoint.memory_room import MARGIN, NoRoomError, memory_room
from holdfast.system.kernel_calls import memory_file
from holdfast.text import size as in_words

_STEP = 4 << 20
"""bytes taken at once: the kernel starts a piece again when a signal comes"""
_PORTABLE = 1
"""cudaHostRegisterPortable: for all GPUs of this process, not only the one that pins"""
_GRAIN = 1 << 20
"""capacity grows in these, so that a tree of a few more bytes does not move the buffer"""
_LOOK = 64
"""steps between two looks at what is left: other ranks of this machine take theirs meanwhile"""
_PIN = 16 << 20
_MOST_PINNED = 1024
"""pieces, however large the memory"""


class SharedMemory:
    """A memfd and its mapping. Only one thread takes, and only while nothing is copied."""

    def __init__(self, *, room: Callable[[], int | None] = memory_room) -> None:
        self.fd = memory_file("holdfast-state")
        self.capacity = 0
        self.map: mmap.mmap | None = None
        self.border = 0
        """bytes between two borders that no copy from a GPU may cross; 0 where nothing is pinned"""
        self.not_pinned = ""
        """why copies from a GPU are slow"""
        self._room = room
        self._pinned: list[int] = []
        self._thread: threading.Thread | None = None
        self._problem: NoRoomError | None = None
        self._closing = False

    @property
    def address(self) -> int:
        return _address(self.map)

    @property
    def busy(self) -> bool:
        return self._thread is not None and self._thread.is_alive()

    def take(self, size: int, gpu: torch.device | None) -> None:
        """Room for so many bytes, pinned for a GPU, in the background."""
        self.wait()
        problem, self._problem = self._problem, None
        if problem is not None:
            raise problem
        is_pinned = gpu is None or bool(self._pinned or self.not_pinned)
        if size <= self.capacity and self.map is not None and is_pinned:
            return
        wanted = max(self.capacity, -(-max(size, 1) // _GRAIN) * _GRAIN)
        self._refuse_if_too_much(wanted - self.capacity)
        self._let_go()
        self._thread = threading.Thread(
            target=self._work, args=(wanted, gpu), name="holdfast-memory", daemon=True
        )
        self._thread.start()

    def wait(self) -> None:
        """Until what is being taken is there; the next `take` raises what went wrong."""
        if self._thread is not None:
            self._thread.join()
            self._thread = None

    def close(self) -> None:
        self._closing = True
        self.wait()
        self._let_go()
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def _work(self, wanted: int, gpu: torch.device | None) -> None:
        signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())  # the training's
        try:
            self._take(wanted)
        except NoRoomError as problem:
            os.ftruncate(self.fd, self.capacity)
            self._problem = problem
            return
        if gpu is not None and self.map is not None:
            self._pin(gpu)

    def _take(self, wanted: int) -> None:
        """Nothing here holds Python up for longer than a moment."""
        floor = (1 - MARGIN) * (self._room() or 0)
        try:
            for number, at in enumerate(range(self.capacity, wanted, _STEP)):
                if self._closing:
                    return
                if number % _LOOK == _LOOK - 1 and (left := self._room()) is not None:
                    self._refuse_below(floor, left, wanted)
                os.posix_fallocate(self.fd, at, min(_STEP, wanted - at))
            memory = mmap.mmap(self.fd, wanted)
        except OSError as problem:
            why = os.strerror(problem.errno or 0)
            raise NoRoomError(f"{in_words(wanted)} of shared memory: {why}") from problem
        # Now it is ours, but not in our page table. Nothing is changed: it may be being written.
        for at in range(0, wanted, _STEP):
            if self._closing:
                return
            _map_pages(memory, at, min(_STEP, wanted - at))
        self.map, self.capacity = memory, wanted

    def _refuse_if_too_much(self, more: int) -> None:
        room = self._room()
        if room is not None and more > room * MARGIN:
            raise NoRoomError(
                f"a copy of the state takes {in_words(more)}, {in_words(room)} is free"
            )

    def _refuse_below(self, floor: float, left: int, wanted: int) -> None:
        if left < floor:
            raise NoRoomError(
                f"a copy of the state takes {in_words(wanted)}; while it was being taken, free "
                f"memory fell to {in_words(left)}"
            )

    def _pin(self, gpu: torch.device) -> None:
        """Copies from a GPU run at full speed, and side by side, into pinned memory only.

        Here and not in the training's thread: an error of the driver stays with the thread that
        met it, and torch would find it there at the next kernel.
        """
        piece = max(_PIN, -(-self.capacity // _MOST_PINNED // _GRAIN) * _GRAIN)
        start = self.address
        with torch.cuda.device(gpu):  # a new thread would start a context on the first one
            for at in range(0, self.capacity, piece):
                if self._closing:
                    return
                began = time.monotonic()
                size = min(piece, self.capacity - at)
                if code := int(_cuda().cudaHostRegister(start + at, size, _PORTABLE)):
                    self._unpin()
                    self.not_pinned = f"the driver does not pin it (CUDA error {code})"
                    return
                self._pinned.append(start + at)
                time.sleep(time.monotonic() - began)
        self.border, self.not_pinned = piece, ""

    def _unpin(self) -> None:
        for address in self._pinned:
            _cuda().cudaHostUnregister(address)
        self._pinned, self.border = [], 0

    def _let_go(self) -> None:
        """Of the mapping; tensors that view it keep it until they go."""
        self._unpin()
        self.map = None


def _map_pages(memory: mmap.mmap, at: int, size: int) -> None:
    error = map_pages(_address(memory) + at, size)
    if not error:
        return
    if error != errno.EINVAL:
        raise NoRoomError(f"shared memory: {os.strerror(error)}")
    torch.frombuffer(memory, dtype=torch.uint8)[at : at + size : mmap.PAGESIZE].add_(0)


def _address(memory: mmap.mmap | None) -> int:
    assert memory is not None
    return torch.frombuffer(memory, dtype=torch.uint8).data_ptr()


def _cuda() -> Any:
    return torch.cuda.cudart()  # type: ignore[no-untyped-call]
