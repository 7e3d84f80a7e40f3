"""Which names a compiled library holds among its constants: what it can possibly ask for.

Only the sections with constants are read, so a library of 400 MB costs the 20 MB that matter.

Absence is weaker than presence: a compiler may turn a short literal into immediate operands
in the code, where no section of constants shows it. So absence is proof only together with a
table of names that are known to be read.
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import NamedTuple

CONSTANTS = (b".rodata", b".data", b".lrodata", b".ldata")
"""beginnings of the names of sections that hold literals; .data.rel.ro and others included"""

_HEADER = struct.Struct("<4sBB34xQ10xHHH")
"""magic, class, byte order, then e_shoff, e_shentsize, e_shnum, e_shstrndx of a 64-byte header"""
_SECTION = struct.Struct("<II16xQQ")
"""sh_name, sh_type, sh_offset, sh_size: the first 40 of 64 bytes"""
_NO_BITS = 8
_WORD = frozenset(b"abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789_")
_LETTERS = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZ")
_UPPER = _LETTERS | frozenset(b"0123456789_")


class _Extent(NamedTuple):
    start: int
    end: int


def find_words(path: str, names: Collection[str]) -> frozenset[str]:
    """Those of the names that the library's constants hold as whole words."""
    with _mapped(path) as data:
        extents = _constants(data)
        return frozenset(n for n in names if any(_holds(data, e, n.encode()) for e in extents))


def find_texts(path: str, beginning: str) -> list[str]:
    """Every text among the constants that begins so, each up to its end."""
    wanted = beginning.encode()
    texts = []
    with _mapped(path) as data:
        for extent in _constants(data):
            at = data.find(wanted, extent.start, extent.end)
            while at >= 0:
                end = data.find(b"\0", at, extent.end)
                end = end if end >= 0 else extent.end
                texts.append(data[at:end].decode(errors="replace"))
                at = data.find(wanted, end, extent.end)
    return texts


@contextmanager
def _mapped(path: str) -> Iterator[mmap.mmap]:
    with (
        open(path, "rb") as file,
        mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ) as data,
    ):
        yield data


def _constants(data: mmap.mmap) -> list[_Extent]:
    """Where the constants are. ValueError for what is no sound 64-bit little-endian ELF file."""
    if len(data) < 64:
        raise ValueError("too short to be an ELF file")
    magic, bits, order, table, entry_size, count, names_at = _HEADER.unpack_from(data)
    if (magic, bits, order) != (b"\x7fELF", 2, 1):
        raise ValueError("not a 64-bit little-endian ELF file")
    if entry_size < _SECTION.size or count == 0 or table + entry_size * count > len(data):
        raise ValueError("the ELF file is cut short or has no section table")
    sections = [_SECTION.unpack_from(data, table + entry_size * i) for i in range(count)]
    if names_at >= count:
        raise ValueError("the ELF file has no section names")
    _, _, names_start, names_size = sections[names_at]
    found = []
    for name, kind, start, size in sections:
        if kind == _NO_BITS or name >= names_size:
            continue
        at = names_start + name
        if data[at : at + 8].startswith(CONSTANTS):
            if start + size > len(data):
                raise ValueError("the ELF file is cut short")
            found.append(_Extent(start, start + size))
    return found


def _ends_a_variable(data: mmap.mmap, extent: _Extent, at: int) -> bool:
    """Whether what precedes the name makes it the tail of a longer variable's name."""
    start = at
    while start > extent.start and data[start - 1] in _UPPER and at - start < 64:
        start -= 1
    whole = start == extent.start or data[start - 1] == 0
    return start < at and whole and data[start] in _LETTERS


def _holds(data: mmap.mmap, extent: _Extent, name: bytes) -> bool:
    """Whether the name is there as a word, or as the end of a constant.

    The end of a longer variable counts: linkers store 'NCCL_X' only once, as the tail of
    'TORCH_NCCL_X', when a program uses both. (The end of '_DEFAULT_PG_NCCL_TIMEOUT', which torch
    has, proves nothing: that is the name of a constant in Python.) A name with other characters
    than a word's (an nccl.conf with spaces makes such) must be a separate constant, or prose
    would match.
    """
    plain = _WORD.issuperset(name)
    at = data.find(name, extent.start, extent.end) if name else -1
    while at >= 0:
        before = data[at - 1] if at > extent.start else 0
        after = data[at + len(name)] if at + len(name) < extent.end else 0
        if after == 0 and (before == 0 or (plain and _ends_a_variable(data, extent, at))):
            return True
        if plain and before not in _WORD and after not in _WORD:
            return True
        at = data.find(name, at + 1, extent.end)
    return False
