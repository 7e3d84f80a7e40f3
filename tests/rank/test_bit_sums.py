"""Bits that are added up: with real torch, on the processor."""

from __future__ import annotations

import struct

import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.rank import bit_sums

KINDS = [torch.float32, torch.bfloat16, torch.float16, torch.float64, torch.uint8, torch.complex64]


def made(kind: torch.dtype, count: int, seed: int) -> torch.Tensor:
    drawn = torch.randn(count, generator=torch.Generator().manual_seed(seed))
    return (drawn * 10).to(kind)


def total(tensor: torch.Tensor) -> int:
    return int(bit_sums.add_up(torch, tensor)) % 2**64


@given(st.sampled_from(KINDS), st.integers(1, 40), st.integers(0, 9), st.data())
@settings(max_examples=80, deadline=None)
def test_every_flip_of_one_bit_shows(
    kind: torch.dtype, count: int, seed: int, data: st.DataObject
) -> None:
    first = data.draw(st.integers(0, count - 1))  # a part of a buffer, not always aligned
    tensor = made(kind, count, seed)[first:]
    before = total(tensor)
    raw = tensor.view(torch.uint8)
    byte, bit = data.draw(st.integers(0, len(raw) - 1)), data.draw(st.integers(0, 7))
    raw[byte] ^= 1 << bit
    assert total(tensor) != before
    raw[byte] ^= 1 << bit
    assert total(tensor) == before


def test_it_is_the_sum_of_64_bit_words() -> None:
    tensor = made(torch.float32, 1000, 3)
    words = struct.unpack("<500q", tensor.numpy().tobytes())
    assert total(tensor) == sum(words) % 2**64


def test_turned_and_strided_tensors_are_summed_in_place() -> None:
    image = made(torch.float32, 2 * 3 * 4 * 4, 1).reshape(2, 3, 4, 4)
    laid_out = image.to(memory_format=torch.channels_last)
    assert total(laid_out) == total(laid_out.permute(0, 2, 3, 1))
    turned = image.reshape(6, 16).t()
    assert total(turned) == total(image)
    every_other = image.reshape(-1)[::2]
    assert total(every_other) == total(every_other.clone())


def test_a_digest_has_a_part_for_each_name_up_to_a_limit() -> None:
    few = {"a": 1, "b": -2, "c": 2**63}
    assert len(bit_sums.digest(few)) == 3 * 8
    assert bit_sums.digest(few) == bit_sums.digest(dict(reversed(few.items())))
    assert bit_sums.part_names(sorted(few)) == ["a", "b", "c"]
    many = {f"{n:04}": n for n in range(1000)}
    changed = bit_sums.digest(many | {"0500": 501})
    unlike = [
        n for n, (a, b) in enumerate(zip(bit_sums.digest(many), changed, strict=True)) if a != b
    ]
    part = {place // 8 for place in unlike}
    assert len(part) == 1
    named = bit_sums.part_names(sorted(many))[part.pop()]
    first, last = named.split(" … ")
    assert first <= "0500" <= last


def test_another_layout_is_told_apart() -> None:
    one = made(torch.float32, 12, 0)
    layouts = {
        bit_sums.layout([("w", t)])
        for t in (one, one.to(torch.float64), one.reshape(3, 4), one.reshape(3, 4).t())
    }
    assert len(layouts) == 4
    assert bit_sums.layout([("w", one)]) == bit_sums.layout([("w", one.clone())])
