"""A digest and a few values of the weights that a rank holds. Nothing here communicates."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from typing import Any

from holdfast.rank import bit_sums

BUDGET = {"cpu": 64 << 20, "cuda": 1 << 30}
"""bytes that are read after each step, by device: a few milliseconds; of more a sample is read"""
BLOCK = 1024
"""neighbouring numbers that are read of a sample"""
VALUES = 16


def local_parts(torch: Any, parameters: Iterable[Any]) -> list[Any]:
    """What this rank holds of each; a DTensor's own methods may communicate."""
    held = {id(one): getattr(one, "_local_tensor", one).detach() for one in parameters}
    plain = (torch.Tensor, torch.nn.Parameter)
    return [
        one
        for one in held.values()
        if type(one) in plain and one.device.type in BUDGET and one.numel()
    ]


def sums(torch: Any, tensors: Sequence[Any]) -> list[Any]:
    """One number for each, on its own device: different when any bit that is read is different."""
    total: dict[str, int] = {}
    for one in tensors:
        size = one.numel() * one.element_size()
        total[one.device.type] = total.get(one.device.type, 0) + size
    every = {kind: -(-size // BUDGET[kind]) for kind, size in total.items()}
    return [bit_sums.add_up(torch, _sample(one, every[one.device.type])) for one in tensors]


def _sample(tensor: Any, every: int) -> Any:
    """One block of `every` blocks, without a copy where the tensor is contiguous."""
    blocks = tensor.numel() // (BLOCK * every)
    if every == 1 or not blocks or not tensor.is_contiguous():
        return tensor
    return tensor.view(-1)[: blocks * BLOCK * every].view(blocks, every, BLOCK)[:, 0]


def digest(read: Sequence[int]) -> str:
    """Sixteen hexadecimal digits of what `sums` gave; '' of nothing."""
    raw = b"".join((one % 2**64).to_bytes(8, "little") for one in read)
    return hashlib.blake2b(raw, digest_size=8).hexdigest() if raw else ""


def some_values(tensors: Sequence[Any]) -> list[Any]:
    """About 16 of them, spread over all: views of one number each."""
    chosen = (
        [tensors[len(tensors) * number // VALUES] for number in range(VALUES)] if tensors else []
    )
    return [
        _at(one, one.numel() * (2 * number + 1) // (2 * VALUES))
        for number, one in enumerate(chosen)
        if one.is_floating_point()
    ]


def _at(tensor: Any, place: int) -> Any:
    """A view, also of a tensor that is not contiguous: flattening would copy it."""
    for length in reversed(tensor.shape):
        tensor, place = tensor.select(-1, place % length), place // length
    return tensor
