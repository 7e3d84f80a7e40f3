"""Single numbers that lie on any device, read without making the script wait for a GPU.

A GPU is asked for all of its numbers in one copy, and a thread of ours waits for it: a rank whose
GPU hangs must be found where its script waits, not in here.
"""

from __future__ import annotations

import queue
import struct
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any

EVERY = 0.002
"""seconds between two questions whether a copy is done"""


class DeviceNumbers:
    """Tensors of one number each, as integers of 64 bits; a float by its bits (`as_float`)."""

    def __init__(self, torch: Any, numbers: Sequence[Any]) -> None:
        self._found = [0] * len(numbers)
        self._copies: list[tuple[list[int], Any, Any]] = []
        """which of them, where they are to be, and the event after which they are there"""
        by_device: dict[Any, list[int]] = {}
        for place, one in enumerate(numbers):
            if one.is_cuda:
                by_device.setdefault(one.device, []).append(place)
            else:
                self._found[place] = _bits_of(one.item())
        for device, places in by_device.items():
            self._copy(torch, device, places, numbers)

    def _copy(self, torch: Any, device: Any, places: list[int], numbers: Sequence[Any]) -> None:
        with torch.no_grad(), torch.cuda.device(device):
            bits = torch.stack([_bits(torch, numbers[place]) for place in places])
            kept = torch.empty(len(bits), dtype=torch.int64, device="cpu", pin_memory=True)
            kept.copy_(bits, non_blocking=True)
            done = torch.cuda.Event()
            done.record()
        self._copies.append((places, kept, done))

    @property
    def here(self) -> bool:
        return all(done.query() for _, _, done in self._copies)

    def read(self) -> list[int]:
        for places, kept, _ in self._copies:
            for place, number in zip(places, kept.tolist(), strict=True):
                self._found[place] = number
        return self._found


def _bits(torch: Any, number: Any) -> Any:
    number = number.detach().reshape(())
    if number.is_floating_point():
        return number.to(torch.float64).view(torch.int64)
    return number.to(torch.int64)


def _bits_of(number: float) -> int:
    """The same of a number of Python."""
    if isinstance(number, float):
        return int(struct.unpack("<q", struct.pack("<d", number))[0])
    return int(number)


def as_float(bits: int) -> float:
    return float(struct.unpack("<d", struct.pack("<q", bits))[0])


class WaitingRecords:
    """What is to be done with numbers once they are here, in the order in which it was asked."""

    def __init__(self, failed: Callable[[BaseException], None]) -> None:
        self._failed = failed
        self._queue: queue.SimpleQueue[tuple[DeviceNumbers, Callable[[list[int]], None]]]
        self._queue = queue.SimpleQueue()
        self._waiting = 0
        self._thread: threading.Thread | None = None

    def add(self, numbers: DeviceNumbers, then: Callable[[list[int]], None]) -> None:
        """At once where no GPU is used; else by a thread, which starts with the first."""
        if self._thread is None and numbers.here:
            then(numbers.read())
            return
        if self._thread is None:
            self._thread = threading.Thread(target=self._work, name="holdfast-drill", daemon=True)
            self._thread.start()
        self._waiting += 1
        self._queue.put((numbers, then))

    def finish(self, seconds: float) -> None:
        """Wait until all is done, and not for ever: the GPU may hang."""
        until = time.monotonic() + seconds
        while self._waiting and time.monotonic() < until:
            time.sleep(EVERY)

    def _work(self) -> None:
        while True:
            numbers, then = self._queue.get()
            try:
                while not numbers.here:
                    time.sleep(EVERY)
                then(numbers.read())
            except Exception as problem:  # noqa: BLE001 - a GPU that failed
                self._failed(problem)
            self._waiting -= 1
