"""Is a zip archive whole, as far as its end and its table of contents tell?

Its members are not read: an archive of many gigabytes costs a few kilobytes. Not by `zipfile`:
where bytes are missing in the middle it takes the archive for one with something in front, moves
all offsets, and so hides the very damage that is looked for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import BinaryIO, NamedTuple

LARGEST_TABLE = 32 << 20
"""bytes of a table of contents we are ready to read; we say nothing about a larger one"""

_END = struct.Struct("<4s4xHHIIH")
"""end of central directory: signature, entries here, entries, size, offset, comment length"""
_END64 = struct.Struct("<4s20xQQQQ")
_LOCATOR = struct.Struct("<4s4xQ4x")
_ENTRY = struct.Struct("<4s16xIIHHH8xI")
"""central directory entry: compressed and full size, lengths of its three texts, offset"""
_LOCAL_HEADER = 30


class _Member(NamedTuple):
    start: int
    least_end: int


def problem_of_zip(file: BinaryIO, size: int) -> str:
    """What is wrong with the archive in words, '' when nothing is."""
    cut_short = "cut short: the zip archive has no end record, so the write did not finish"
    try:
        entries, table_start, table_size = _end_record(file, size)
    except (ValueError, struct.error):
        return cut_short
    if table_size > LARGEST_TABLE:
        return ""
    file.seek(table_start)
    try:
        members = sorted(_members(file.read(table_size), entries))
    except (ValueError, struct.error):
        return "damaged: the zip archive's table of contents cannot be read"
    # A member's own header may be padded, so its end is known only as 'not before'.
    limits = [*(m.start for m in members[1:]), table_start]
    if any(m.least_end > limit for m, limit in zip(members, limits, strict=False)):
        return "damaged: parts of the zip archive overlap, so bytes are missing in the middle"
    return ""


def _end_record(file: BinaryIO, size: int) -> tuple[int, int, int]:
    """Entries, start and size of the table of contents; ValueError when there is no end."""
    tail_start = max(0, size - _END.size - 0xFFFF)
    file.seek(tail_start)
    tail = file.read()
    at = tail.rfind(b"PK\5\6")
    if at < 0:
        raise ValueError("no end record")
    _, _, entries, table_size, table_start, comment = _END.unpack_from(tail, at)
    if at + _END.size + comment != len(tail):
        raise ValueError("the end record is not at the end")
    locator = at - _LOCATOR.size
    if locator >= 0 and tail[locator : locator + 4] == b"PK\6\7":
        _, end64 = _LOCATOR.unpack_from(tail, locator)
        if end64 + _END64.size > size:
            raise ValueError("the large end record is outside the file")
        file.seek(end64)
        signature, _, entries, table_size, table_start = _END64.unpack(file.read(_END64.size))
        if signature != b"PK\6\6":
            raise ValueError("no large end record")
    if table_start + table_size > tail_start + at:
        raise ValueError("the table of contents is behind its end")
    return entries, table_start, table_size


def _members(table: bytes, entries: int) -> Iterator[_Member]:
    at = 0
    for _ in range(entries):
        signature, packed, full, name, extra, comment, start = _ENTRY.unpack_from(table, at)
        if signature != b"PK\1\2":
            raise ValueError("not an entry")
        at += _ENTRY.size + name
        if 0xFFFFFFFF in (packed, full, start):
            packed, start = _large_values(table[at : at + extra], packed, full, start)
        at += extra + comment
        yield _Member(start, start + _LOCAL_HEADER + name + packed)


def _large_values(extra: bytes, packed: int, full: int, start: int) -> tuple[int, int]:
    """Values that did not fit into 32 bits are in extra field 1, in this order."""
    at = 0
    while at + 4 <= len(extra):
        kind, length = struct.unpack_from("<HH", extra, at)
        if kind == 1:
            values = iter(struct.unpack_from(f"<{length // 8}Q", extra, at + 4))
            _ = next(values, 0) if full == 0xFFFFFFFF else full
            packed = next(values, packed) if packed == 0xFFFFFFFF else packed
            start = next(values, start) if start == 0xFFFFFFFF else start
            return packed, start
        at += 4 + length
    return packed, start
