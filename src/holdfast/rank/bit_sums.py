"""The bits of a tensor, added up on its own device: equal tensors give equal sums.

The bits are added as 64-bit integers modulo 2**64. That is exact, whatever the order in which a GPU
adds, and one bit that is flipped always changes it. Several flips may cancel each other out; the
next optimizer step moves such values apart by rounding, and the next sum shows it.
"""

from __future__ import annotations

import hashlib
import itertools
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

WORD = 8
MOST_PARTS = 32
"""a digest says in which of so many parts of the tensors a difference is"""


def add_up(torch: Any, tensor: Any) -> Any:
    """A tensor of one int64 on the same device. Nothing of the size of `tensor` is allocated."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    size = tensor.element_size()
    narrow = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}[size]
    bits = _in_memory_order(tensor).view(narrow)
    before = -bits.storage_offset() % (WORD // size)
    whole = (len(bits) - before) * size // WORD * (WORD // size)
    if whole <= 0 or (bits.data_ptr() + before * size) % WORD:
        return bits.sum(dtype=torch.int64)  # small, or not from torch's allocator: this copies
    words = bits[before : before + whole].view(torch.int64).sum()
    if whole == len(bits):
        return words
    rest = torch.cat((bits[:before], bits[before + whole :]))
    return words + rest.sum(dtype=torch.int64)


def _in_memory_order(tensor: Any) -> Any:
    """One-dimensional; without a copy also for channels_last and transposed parameters."""
    if tensor.is_contiguous():
        return tensor.view(-1)
    expected = 1
    for stride, length in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if length != 1 and stride != expected:
            return tensor.contiguous().view(-1)
        expected *= length
    return tensor.as_strided((tensor.numel(),), (1,), tensor.storage_offset())


def parts(names: Sequence[str]) -> list[tuple[int, int]]:
    """Where each part of the names begins and ends."""
    count = min(MOST_PARTS, len(names))
    at = [len(names) * part // count for part in range(count + 1)]
    return list(itertools.pairwise(at))


def part_names(names: Sequence[str]) -> list[str]:
    """'fc1.weight', or 'layers.0.weight … layers.3.bias' for several."""
    return [
        names[first] if last - first == 1 else f"{names[first]} … {names[last - 1]}"
        for first, last in parts(names)
    ]


def digest(sums: Mapping[str, int]) -> str:
    """Eight hexadecimal digits for each part of the names, in their order."""
    names = sorted(sums)
    told = []
    for first, last in parts(names):
        raw = b"".join((sums[name] % 2**64).to_bytes(WORD, "little") for name in names[first:last])
        told.append(hashlib.blake2s(raw, digest_size=4).hexdigest())
    return "".join(told)


def layout(tensors: Iterable[tuple[str, Any]]) -> str:
    """Ranks with another one hold other things, or lay them out otherwise: their sums differ."""
    told = sorted(
        (name, str(t.dtype), tuple(t.shape), t.stride(), t.storage_offset() % WORD)
        for name, t in tensors
    )
    return hashlib.blake2s(repr(told).encode(), digest_size=8).hexdigest()
