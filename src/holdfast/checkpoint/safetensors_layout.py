"""The layout of a file of tensors: safetensors', so that any other tool reads ours. No I/O.

    8 bytes   length of the header, little endian
    header    JSON: name -> dtype, shape, data_offsets; padded with spaces
    data      the tensors' bytes, without gaps

Largest element types first, so that each tensor starts at a multiple of its element's size.
https://github.com/huggingface/safetensors#format
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import msgspec

from holdfast.checkpoint.tree import DamagedTreeError

CODES = {
    "float64": "F64", "float32": "F32", "float16": "F16", "bfloat16": "BF16",
    "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "bool": "BOOL",
    "uint64": "U64", "uint32": "U32", "uint16": "U16", "uint8": "U8",
    "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
}  # fmt: skip
"""torch's name -> the format's. Types it does not know are written as bytes (tensors.py)."""
DTYPES = {code: name for name, code in CODES.items()}

_PREFIX = 8
_ALIGNMENT = 64
"""of the data: a cache line. The format asks for 8 only."""
MOST_DIMENSIONS = 64
"""as many as NumPy has"""
LONGEST_HEADER = 100_000_000
"""the format's own limit"""


class TensorEntry(NamedTuple):
    """One tensor of a file."""

    name: str
    code: str
    shape: tuple[int, ...]
    size: int
    """bytes"""
    element: int
    """bytes of one element, which the start is aligned to"""


class FileLayout(NamedTuple):
    """Where everything is in the file."""

    header: bytes
    """the first bytes of the file, its length and padding included"""
    starts: dict[str, int]
    """name -> place in the file"""
    size: int
    """bytes of the whole file"""


class TensorSlice(NamedTuple):
    """Where one tensor is in a file that was read."""

    code: str
    shape: tuple[int, ...]
    start: int
    size: int


class _HeaderEntry(msgspec.Struct):
    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class _HeaderTexts(msgspec.Struct):
    texts: dict[str, str] = msgspec.field(name="__metadata__", default_factory=dict)


def lay_out(
    entries: Sequence[TensorEntry], metadata: Mapping[str, str] | None = None
) -> FileLayout:
    table: dict[str, _HeaderEntry] = {}
    at = 0
    for entry in sorted(entries, key=lambda entry: -entry.element):
        table[entry.name] = _HeaderEntry(entry.code, entry.shape, (at, at + entry.size))
        at += entry.size
    head = {"__metadata__": metadata} if metadata else {}
    text = msgspec.json.encode({**head, **table})
    text += b" " * (-(_PREFIX + len(text)) % _ALIGNMENT)
    begin = _PREFIX + len(text)
    return FileLayout(
        header=len(text).to_bytes(_PREFIX, "little") + text,
        starts={name: begin + each.data_offsets[0] for name, each in table.items()},
        size=begin + at,
    )


def header_size(first: bytes, file_size: int) -> int:
    """Of the header that follows the first 8 bytes."""
    size = int.from_bytes(first, "little")
    if len(first) != _PREFIX or size > min(LONGEST_HEADER, file_size - _PREFIX):
        raise DamagedTreeError("the file of tensors is cut short or damaged: its header says "
                               f"{size} bytes, the file has {file_size}")  # fmt: skip
    return size


def parse(header: bytes, file_size: int) -> dict[str, TensorSlice]:
    """Name -> place. Raises DamagedTreeError if anything points outside the file."""
    try:
        table = msgspec.json.decode(header, type=dict[str, msgspec.Raw])
        table.pop("__metadata__", None)
        described = {n: msgspec.json.decode(raw, type=_HeaderEntry) for n, raw in table.items()}
    except (msgspec.DecodeError, ValueError, RecursionError) as odd:
        raise DamagedTreeError(f"the header of a file of tensors is damaged: {odd}") from odd
    begin = _PREFIX + len(header)
    found, left = {}, file_size - begin
    for name, each in described.items():
        start, end = each.data_offsets
        if not 0 <= start <= end <= file_size - begin or any(side < 0 for side in each.shape):
            raise DamagedTreeError(f"tensor {name!r} is outside its file")
        left -= end - start
        # The same bytes under a million names would be a million copies.
        if left < 0 or len(each.shape) > MOST_DIMENSIONS:
            raise DamagedTreeError(f"tensor {name!r:.80} overlaps others or has too many sides")
        found[name] = TensorSlice(each.dtype, each.shape, begin + start, end - start)
    return found


def metadata(header: bytes) -> dict[str, str]:
    """The texts in a header that `parse` took; {} where there are none, or something else."""
    try:
        return msgspec.json.decode(header, type=_HeaderTexts).texts
    except msgspec.ValidationError:
        return {}
