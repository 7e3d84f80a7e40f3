"""The numbers in the message of torch's allocator when a GPU is out of memory. Pure.

The sentence has changed several times since torch 1.0; each number has its own pattern here,
so that a line that is cut, or broken in two, gives what it still holds.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns.gpu_memory import AT_FIRST_USE, CUDA_CALL, NUMBERS
from holdfast.analysis.logs.wreckage import Sighting, Wreckage

_SIZE = r"(?<![\d.])(\d{1,20}(?:\.\d+)?) (bytes|KiB|MiB|GiB|TiB|KB|MB|GB)"
_UNITS = {"b": 1, "k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}

_TRIED = re.compile(rf"Tried to allocate {_SIZE}")
_TOTAL = re.compile(rf"total capac\w+ of {_SIZE}|{_SIZE} total capacity")
_FREE = re.compile(rf"of which {_SIZE} is free|; {_SIZE} free")
_THIS = re.compile(rf"this process has {_SIZE} memory in use")
_ALLOCATED = re.compile(rf"{_SIZE} (?:is allocated by|already allocated)")
_UNALLOCATED = re.compile(rf"{_SIZE} (?:is reserved by PyTorch but unallocated|cached)")
_RESERVED = re.compile(rf"{_SIZE} reserved in total by PyTorch")
_OTHER = re.compile(rf"[Pp]rocess (\d+) has {_SIZE} memory in use")
_GPU = re.compile(r"GPU (\d+)(?:;| has a total)")

MOSTLY_OTHERS = 0.5
"""share of the GPU held by other processes above which this job's own use is not the problem"""
PARTLY_OTHERS = 0.2
"""share above which the other processes count too"""
CONTEXT = 2 << 30
"""what a process takes on its GPU besides torch's memory: context, libraries, NCCL's buffers"""


class Shortage(msgspec.Struct, frozen=True, kw_only=True):
    """Bytes; None for what the message does not say."""

    gpu: int | None = None
    tried: float | None = None
    total: float | None = None
    free: float | None = None
    own: float | None = None
    """held by the process that wrote the message"""
    unused: float | None = None
    """of that, kept by torch and not in use: fragments"""
    others: tuple[tuple[int, float], ...] = ()
    """(pid, bytes) of other processes on that GPU, where torch could name them"""

    @property
    def foreign(self) -> float | None:
        """Neither free nor held by the process itself."""
        if self.total is None or self.free is None or self.own is None:
            return None
        return max(self.total - self.free - self.own, 0.0)

    @property
    def foreign_share(self) -> float:
        """Of the whole GPU; 0 when unknown, or no more than a context takes."""
        foreign = self.foreign
        if foreign is None or not self.total or foreign < CONTEXT:
            return 0.0
        return foreign / self.total

    @property
    def own_share(self) -> float | None:
        return self.own / self.total if self.own is not None and self.total else None


def read(texts: Iterable[str]) -> Shortage:
    text = " ".join(" ".join(texts).split())
    own, unused = _own(text)
    gpu = _GPU.search(text)
    return Shortage(
        gpu=int(gpu[1]) if gpu else None,
        tried=_bytes(_TRIED, text),
        total=_bytes(_TOTAL, text),
        free=_bytes(_FREE, text),
        own=own,
        unused=unused,
        others=_others(text, own),
    )


def _own(text: str) -> tuple[float | None, float | None]:
    """What the process holds, and how much of that it does not use."""
    allocated, unused = _bytes(_ALLOCATED, text), _bytes(_UNALLOCATED, text)
    reserved = _bytes(_RESERVED, text)
    if unused is None and reserved is not None and allocated is not None:
        unused = max(reserved - allocated, 0.0)
    told = [
        _bytes(_THIS, text),
        reserved,
        None if allocated is None else allocated + (unused or 0.0),
    ]
    # Some versions print an underflow there: 'this process has 17179869183.99 GiB'.
    limit = _bytes(_TOTAL, text) or float("inf")
    known = [one for one in told if one is not None and one <= limit]
    return max(known, default=None), unused


def _others(text: str, own: float | None) -> tuple[tuple[int, float], ...]:
    """Inside a container torch cannot find itself by its pid, and lists itself among the others."""
    listed = [(int(pid), _scaled(size, unit)) for pid, size, unit in _OTHER.findall(text)]
    if own is not None and not _THIS.search(text):
        itself = [one for one in listed if own <= one[1] * 1.01 and one[1] <= own + CONTEXT]
        if itself:
            listed.remove(min(itself, key=lambda one: one[1]))
    return tuple(listed)


def _bytes(pattern: re.Pattern[str], text: str) -> float | None:
    found = pattern.search(text)
    if not found:
        return None
    size, unit = (part for part in found.groups() if part is not None)
    return _scaled(size, unit)


def _scaled(size: str, unit: str) -> float:
    return float(size) * _UNITS[unit[0].lower()]


def shortage_of(wreckage: Wreckage, seen: Sequence[Sighting]) -> Shortage:
    """The numbers of the first rank that ran out; long messages may be split into lines."""
    first = seen[0].line
    more = [
        one.line.text
        for one in wreckage.seen(NUMBERS)
        if one.rank == first.rank and one.line.source == first.source
        if 0 <= one.line.number - first.number < 4 and one.line.number != first.number
    ]
    return read([first.text, *more])


_FIRST_USES = ("_lazy_init", "set_device", "_cuda_init", "current_device")
"""functions of torch.cuda that create the context and allocate nothing else"""


def full_at_first_use(wreckage: Wreckage) -> tuple[Sighting, ...]:
    """Calls that failed before their process held anything: then others hold the memory."""
    return wreckage.seen(AT_FIRST_USE) or tuple(
        seen
        for seen in wreckage.seen(CUDA_CALL)
        if (raised := sightings.raised_at(wreckage, seen)) and raised.frames
        if raised.frames[0].function in _FIRST_USES and "/torch/cuda/" in raised.frames[0].file
    )
