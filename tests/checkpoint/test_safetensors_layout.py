"""The layout of a file of tensors: the format's rules, and no damage goes unseen."""

from __future__ import annotations

import json
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.checkpoint import safetensors_layout
from holdfast.checkpoint.safetensors_layout import TensorEntry, TensorSlice, lay_out
from holdfast.checkpoint.tree import DamagedTreeError

SIZES = {"F64": 8, "F32": 4, "BF16": 2, "U8": 1}


@st.composite
def entry_lists(draw: st.DrawFn) -> list[TensorEntry]:
    entries = []
    for name in draw(st.lists(st.text(max_size=8), unique=True, max_size=6)):
        code = draw(st.sampled_from(sorted(SIZES)))
        shape = tuple(draw(st.lists(st.integers(0, 5), max_size=3)))
        size = math.prod(shape) * SIZES[code]
        entries.append(TensorEntry(name, code, shape, size, SIZES[code]))
    return [entry for entry in entries if entry.name != "__metadata__"]


@given(entry_lists())
def test_the_rules_of_the_format_hold(entries: list[TensorEntry]) -> None:
    found = lay_out(entries)
    length = int.from_bytes(found.header[:8], "little")
    assert length == len(found.header) - 8
    assert len(found.header) % 8 == 0
    table = json.loads(found.header[8:])
    offsets = sorted(tuple(each["data_offsets"]) for each in table.values())
    ends = [0, *(end for _, end in offsets)]
    assert [begin for begin, _ in offsets] == ends[:-1]  # no gaps, no overlaps
    assert found.size == len(found.header) + ends[-1]
    assert all(found.starts[entry.name] % entry.element == 0 for entry in entries)


@given(entry_lists())
def test_what_is_laid_out_is_found_again(entries: list[TensorEntry]) -> None:
    found = lay_out(entries)
    size = safetensors_layout.header_size(found.header[:8], found.size)
    slices = safetensors_layout.parse(found.header[8 : 8 + size], found.size)
    assert slices == {
        each.name: TensorSlice(each.code, each.shape, found.starts[each.name], each.size)
        for each in entries
    }


@given(entry_lists(), st.data())
def test_damage_never_points_outside_the_file(
    entries: list[TensorEntry], data: st.DataObject
) -> None:
    found = lay_out(entries)
    raw = bytearray(found.header)
    raw[data.draw(st.integers(0, len(raw) - 1))] ^= 1 << data.draw(st.integers(0, 7))
    file_size = data.draw(st.integers(0, found.size))
    try:
        size = safetensors_layout.header_size(bytes(raw[: min(8, file_size)]), file_size)
        slices = safetensors_layout.parse(bytes(raw[8 : 8 + size]), file_size)
    except DamagedTreeError:
        return
    assert all(0 < each.start <= each.start + each.size <= file_size for each in slices.values())


@pytest.mark.parametrize("shape", [[-1, -4], [2.5], "ab", None])
def test_shapes_that_are_none_are_refused(shape: object) -> None:
    table = {"a": {"dtype": "F32", "shape": shape, "data_offsets": [0, 16]}}
    with pytest.raises(DamagedTreeError):
        safetensors_layout.parse(json.dumps(table).encode(), 10_000)
