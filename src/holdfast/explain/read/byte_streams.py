"""Streams of bytes, plain or compressed: bounded in memory and in total.

Nothing is ever written to disk. A bomb (a small file that unpacks to terabytes) is read up to a
limit and then reported as cut short; plain files have no limit.
"""

from __future__ import annotations

import bz2
import importlib
import importlib.util
import lzma
import zlib
from collections.abc import Callable
from typing import Protocol, cast

from holdfast.text import size

PIECE = 64 << 10
FREE = 256 << 20
"""so much may come out of any packed file, however small it is"""
RATIO = 200
"""beyond that: logs pack 10 to 60 times, a bomb a thousand times or more"""
TOTAL = 32 << 30
"""out of all packed files of one call"""
MAGIC = 10
"""bytes that tell how something is packed"""
XZ_MEMORY = 128 << 20
"""xz -9 needs 65 MiB to unpack; a crafted header asks for gigabytes"""


class Reader(Protocol):
    def read(self, count: int, /) -> bytes: ...


class CutShortError(Exception):
    """There may be more, but it cannot or must not be read; says why."""


class TotalBudget:
    """What may still be unpacked in this call, all files together."""

    def __init__(self, left: int = TOTAL) -> None:
        self.left = left


class FileBudget:
    """What may be unpacked from one file, all its layers and members together."""

    def __init__(self, packed: int, total: TotalBudget) -> None:
        self.packed = packed
        self._total = total
        self._spent = 0

    def spend(self, count: int) -> None:
        self._spent += count
        self._total.left -= count
        if self._spent > max(FREE, RATIO * self.packed):
            raise CutShortError(
                f"read up to {size(self._spent)}: it unpacks to more than {RATIO} times its size"
            )
        if self._total.left < 0:
            raise CutShortError(
                f"read up to {size(self._spent)}: one call unpacks at most {size(TOTAL)}"
            )


class Decompressor(Protocol):
    """As bz2, lzma and zstd have it."""

    @property
    def eof(self) -> bool: ...
    @property
    def needs_input(self) -> bool: ...
    @property
    def unused_data(self) -> bytes: ...
    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes: ...


class _Gzip:
    """zlib's object, which leaves the input it did not use to its caller."""

    def __init__(self) -> None:
        self._zlib = zlib.decompressobj(16 + zlib.MAX_WBITS)

    @property
    def eof(self) -> bool:
        return self._zlib.eof

    @property
    def needs_input(self) -> bool:
        return not self._zlib.unconsumed_tail

    @property
    def unused_data(self) -> bytes:
        return self._zlib.unused_data

    def decompress(self, data: bytes, /, max_length: int = -1) -> bytes:
        return self._zlib.decompress(self._zlib.unconsumed_tail + data, max_length)


def _xz() -> Decompressor:
    return lzma.LZMADecompressor(memlimit=XZ_MEMORY)


def _zstd() -> Decompressor:
    return cast("Decompressor", importlib.import_module("compression.zstd").ZstdDecompressor())


HAS_ZSTD = importlib.util.find_spec("compression") is not None  # Python 3.14
_KINDS: dict[bytes, Callable[[], Decompressor]] = {
    b"\x1f\x8b\x08": _Gzip,
    b"BZh": bz2.BZ2Decompressor,
    b"\xfd7zXZ\0": _xz,
    b"\x28\xb5\x2f\xfd": _zstd,
}
_UNREADABLE = {
    b"\x04\x22\x4d\x18": "lz4 data: unpack it first, with `lz4 -d`",
    b"7z\xbc\xaf\x27\x1c": "a 7z archive: unpack it first, with `7z x`",
    b"Rar!\x1a\x07": "a rar archive: unpack it first, with `unrar x`",
}
if not HAS_ZSTD:
    _UNREADABLE[b"\x28\xb5\x2f\xfd"] = (
        "needs zstd, which Python has since 3.14: unpack it first, with `zstd -d`"
    )


def unreadable(peek: bytes) -> str:
    """Why data that begins like this cannot be unpacked here; '' otherwise."""
    return next((why for magic, why in _UNREADABLE.items() if peek.startswith(magic)), "")


def packing(peek: bytes) -> Callable[[], Decompressor] | None:
    """How data that begins like this is packed, whatever its name says."""
    if peek.startswith(b"BZh") and peek[4:10] not in (b"1AY&SY", b"\x17rE8P\x90"):
        return None
    return next((make for magic, make in _KINDS.items() if peek.startswith(magic)), None)


class Unpacked:
    """Reads what a packed reader holds; several streams one after the other are one."""

    def __init__(
        self, packed: Reader, make: Callable[[], Decompressor], budget: FileBudget
    ) -> None:
        self._packed = packed
        self._make = make
        self._budget = budget
        self._stream = make()
        self._pending = b""
        self._length = 0

    def read(self, count: int, /) -> bytes:
        while True:
            if self._stream.eof and not self._next_stream():
                return b""
            unpacked = self._some(count)
            if unpacked:
                self._length += len(unpacked)
                self._budget.spend(len(unpacked))
                return unpacked

    def _some(self, count: int) -> bytes:
        data = b""
        if self._stream.needs_input:
            data, self._pending = self._pending or self._packed.read(PIECE), b""
        try:
            unpacked = self._stream.decompress(data, count)
        except (zlib.error, lzma.LZMAError, OSError, ValueError, EOFError) as error:
            raise CutShortError(
                f"read up to {size(self._length)}: the packed data is damaged ({error})"
            ) from error
        if not data and not unpacked and not self._stream.eof and self._stream.needs_input:
            raise CutShortError(f"read up to {size(self._length)}: the packed data ends too early")
        return unpacked

    def _next_stream(self) -> bool:
        # Padding and rubbish after the end are common (tapes, appended blocks) and no damage.
        rest = self._stream.unused_data
        while len(rest) < MAGIC and (more := self._packed.read(PIECE)):
            rest += more
        if packing(rest) is not self._make:
            return False
        self._stream, self._pending = self._make(), rest
        return True
