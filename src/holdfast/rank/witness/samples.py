"""Which samples went into the model: the sum of their digests, in any order, on any rank.

A sample is a row along the first dimension. Its digest depends on every bit of it and on the name
of the tensor that it is a row of; the sum over all samples is taken modulo 2**64 on the device that
holds them. The same samples give the same sum on one rank and on many.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Iterator, Mapping
from typing import Any

LONGEST_ROW = 1 << 18
"""numbers of a row that are read; of longer ones a part, spread over all of it"""
AT_ONCE = 1 << 22
"""numbers that are read at once: that many times 16 bytes are allocated"""
DEEPEST = 8
_ODD = 0x9E3779B97F4A7C15
"""multiplier of splitmix64"""


def tensors(torch: Any, args: Any, kwargs: Any) -> list[tuple[str, Any]]:
    """Every tensor of a batch, with its name: those that are no result of the training itself and
    have as many rows as the first."""
    found = [
        (name, getattr(one, "_local_tensor", one).detach())
        for name, one in _walk(torch, "", [args, kwargs], DEEPEST)
        if not one.requires_grad and one.dim()
    ]
    return [(name, one) for name, one in found if len(one) == len(found[0][1])]


def _walk(torch: Any, name: str, value: Any, depth: int) -> Iterator[tuple[str, Any]]:
    if isinstance(value, torch.Tensor):
        yield name, value
    elif depth and isinstance(value, Mapping):
        for key in sorted(value, key=str):
            yield from _walk(torch, f"{name}.{key}", value[key], depth - 1)
    elif depth and isinstance(value, list | tuple):
        for number, one in enumerate(value):
            yield from _walk(torch, f"{name}.{number}", one, depth - 1)


def sum_of_digests(torch: Any, name: str, tensor: Any) -> Any:
    """A tensor of one int64, on the same device."""
    rows = _bits(torch, tensor)
    length = rows.shape[1]
    multipliers = _multipliers(torch, length, rows.device)
    salt = int.from_bytes(
        hashlib.blake2b(f"{name} {tensor.dtype} {length}".encode(), digest_size=8).digest(),
        "little", signed=True,
    )  # fmt: skip
    total = torch.zeros((), dtype=torch.int64, device=rows.device)
    for chunk in rows.split(max(1, AT_ONCE // max(1, length))):
        mixed = (chunk.to(torch.int64) * multipliers).sum(1) + salt
        total += _mix(mixed).sum()
    return total


def _bits(torch: Any, tensor: Any) -> Any:
    """One row of integers for each sample."""
    if tensor.is_complex():
        tensor = torch.view_as_real(tensor.resolve_conj())
    rows = tensor.reshape(len(tensor), math.prod(tensor.shape[1:]))
    every = -(-rows.shape[1] // LONGEST_ROW)
    narrow = {1: torch.uint8, 2: torch.int16, 4: torch.int32, 8: torch.int64}
    return rows[:, :: max(1, every)].contiguous().view(narrow[rows.element_size()])


def _multipliers(torch: Any, length: int, device: Any) -> Any:
    """An odd number for each place of a row: a row with two numbers exchanged is another one."""
    places = torch.arange(1, length + 1, dtype=torch.int64, device=device)
    return _mix(places * _signed(_ODD)) | 1


def _mix(numbers: Any) -> Any:
    """Such that sums of its results do not follow from sums of what goes in."""
    numbers = (numbers ^ (numbers >> 30)) * _signed(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> 27)) * _signed(0x94D049BB133111EB)
    return numbers ^ (numbers >> 31)


def _signed(number: int) -> int:
    return number - (1 << 64) if number >> 63 else number
