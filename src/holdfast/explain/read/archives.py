"""The members of a tar or zip archive, one by one, read in place: never extracted.

Names in archives are labels to show, nothing is opened by them. Python's tarfile takes an
extended header of any length into memory and, before 3.13, reads it in quadratic time; so tar
is read here, in the few lines that a stream of regular files needs.
"""

from __future__ import annotations

import io
import re
import struct
import zipfile
import zlib
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.explain.read.byte_streams import CutShortError, FileBudget, Reader

_BLOCK = 512
_LONGEST_HEADER = 64 << 10
"""of a name or a table of extended attributes"""
_LARGEST_DIRECTORY = 8 << 20
"""of a zip, in the file; in memory it takes ten times as much"""
_LARGEST_INNER_ZIP = 256 << 20
"""a zip that comes as a stream is held in memory, because its directory is at its end"""

_KIND_WORDS = {
    b"1": "a hard link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a pipe",
    b"S": "a sparse file",
}


class ArchiveMember(NamedTuple):
    name: str
    size: int
    reader: Reader | None
    """good until the next member is asked for; None: skipped"""
    problem: str = ""


# --- tar ------------------------------------------------------------------------------------


def is_tar(peek: bytes) -> bool:
    return peek[257:262] == b"ustar" and _checksum_fits(peek[:_BLOCK])


def tar_members(reader: Reader) -> Iterator[ArchiveMember]:
    """Every regular file; raises CutShortError where the archive is damaged or ends too early."""
    names: dict[str, bytes] = {}
    while True:
        header = _exactly(reader, _BLOCK)
        if not header.strip(b"\0"):
            return
        if not _checksum_fits(header):
            raise CutShortError("the archive is damaged: an invalid header")
        kind, size = header[156:157], _number(header[124:136])
        if kind in b"xgLK" and kind:
            names |= _extension(kind, _exactly(reader, _bounded(size)))
            _skip(reader, -size % _BLOCK)
            continue
        size = _number(names.get("size", b"")) if names.get("size") else size
        body = _Body(reader, size)
        yield _tar_member(header, kind, size, names, body)
        _skip(reader, body.left + -size % _BLOCK)
        names = {}


def _tar_member(
    header: bytes, kind: bytes, size: int, names: dict[str, bytes], body: _Body
) -> ArchiveMember:
    prefix = header[345:500].split(b"\0")[0] if header[257:263] == b"ustar\0" else b""
    short = b"/".join(part for part in (prefix, header[:100].split(b"\0")[0]) if part)
    name = names.get("path", short).decode("utf-8", "replace")
    sparse = any(key.startswith("GNU.sparse") for key in names)
    if kind in (b"0", b"\0", b"7") and not sparse:
        return ArchiveMember(name, size, body)
    folder = kind in (b"5", b"D")
    what = "a sparse file" if sparse else _KIND_WORDS.get(kind, "not a regular file")
    return ArchiveMember(name, size, None, "" if folder else f"skipped: {what} in an archive")


class _Body:
    """So many bytes of the stream."""

    def __init__(self, reader: Reader, size: int) -> None:
        self._reader = reader
        self.left = size

    def read(self, count: int, /) -> bytes:
        data = self._reader.read(min(count, self.left)) if self.left else b""
        if self.left and not data:
            raise CutShortError("the archive ends too early")
        self.left -= len(data)
        return data


def _exactly(reader: Reader, count: int) -> bytes:
    body, pieces = _Body(reader, count), []
    while body.left:
        pieces.append(body.read(body.left))
    return b"".join(pieces)


def _skip(reader: Reader, count: int) -> None:
    body = _Body(reader, count)
    while body.left:
        body.read(1 << 20)


def _bounded(size: int) -> int:
    if size > _LONGEST_HEADER:
        raise CutShortError("the archive is damaged or hostile: a name longer than 64 KiB")
    return size


def _number(field: bytes) -> int:
    """Octal digits, or binary after a byte of 0x80."""
    if field[:1] == b"\x80":
        return int.from_bytes(field[1:], "big")
    digits = field.strip(b" \0")
    base = 10 if len(field) != 12 else 8  # an extended header writes sizes in decimal
    try:
        number = int(digits or b"0", base)
    except ValueError:
        number = -1
    if number < 0:
        raise CutShortError("the archive is damaged: an invalid size")
    return number


def _checksum_fits(header: bytes) -> bool:
    if len(header) < _BLOCK:
        return False
    said = re.match(rb"[ \0]*([0-7]{1,7})", header[148:156])
    return said is not None and int(said[1], 8) == sum(header[:148]) + 256 + sum(header[156:])


def _extension(kind: bytes, data: bytes) -> dict[str, bytes]:
    if kind == b"L":
        return {"path": data.rstrip(b"\0")}
    if kind != b"x":  # of all members, or the target of a link
        return {}
    found, at = {}, 0
    while record := re.compile(rb"(\d{1,6}) ([^=\n]{1,255})=").match(data, at):
        end = at + int(record[1])
        if end <= record.end():
            break
        found[record[2].decode("utf-8", "replace")] = data[record.end() : end - 1]
        at = end
    return found


# --- zip ------------------------------------------------------------------------------------


def is_zip(peek: bytes) -> bool:
    return peek.startswith((b"PK\x03\x04", b"PK\x05\x06"))


def zip_members(
    file: io.BufferedIOBase | io.RawIOBase, budget: FileBudget
) -> Iterator[ArchiveMember]:
    """Every file of a zip that can be sought in."""
    try:
        _refuse_large_directory(file)
        archive = zipfile.ZipFile(file)
        infos = archive.infolist()
    except (zipfile.BadZipFile, OSError, ValueError, struct.error, NotImplementedError) as error:
        raise CutShortError(f"the zip archive is damaged ({error})") from error
    names = {info.filename.rpartition("/")[2] for info in infos}
    if {"data.pkl", "version"} <= names:
        raise CutShortError("skipped: a torch checkpoint, not a log")
    for info in infos:
        if not info.is_dir():
            yield _zip_member(archive, info, budget)


def _zip_member(
    archive: zipfile.ZipFile, info: zipfile.ZipInfo, budget: FileBudget
) -> ArchiveMember:
    if info.flag_bits & 1:
        return ArchiveMember(info.filename, info.file_size, None, "encrypted")
    if info.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
        # zipfile unpacks the other kinds without a bound on what one read brings to memory.
        why = "packed by an uncommon method: unpack the archive first, with `unzip`"
        return ArchiveMember(info.filename, info.file_size, None, why)
    try:
        return ArchiveMember(info.filename, info.file_size, _ZipBody(archive.open(info), budget))
    except (zipfile.BadZipFile, OSError, ValueError, RuntimeError, NotImplementedError) as error:
        return ArchiveMember(info.filename, info.file_size, None, f"damaged ({error})")


class _ZipBody:
    def __init__(self, file: Reader, budget: FileBudget) -> None:
        self._file = file
        self._budget = budget

    def read(self, count: int, /) -> bytes:
        try:
            data = self._file.read(count)
        except (zipfile.BadZipFile, zlib.error, EOFError, OSError, ValueError) as error:
            raise CutShortError(f"damaged ({error})") from error
        self._budget.spend(len(data))
        return data


def _refuse_large_directory(file: io.BufferedIOBase | io.RawIOBase) -> None:
    """Millions of empty entries would fill the memory before the first one is seen."""
    length = file.seek(0, io.SEEK_END)
    file.seek(max(0, length - (64 << 10) - 98))
    end = file.read(128 << 10) or b""
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or len(end) < at + 22:
        raise zipfile.BadZipFile("it has no directory at its end")
    directory = int.from_bytes(end[at + 12 : at + 16], "little")
    wide = end[max(0, at - 76) : at]
    if wide[:4] == b"PK\x06\x06":
        directory = int.from_bytes(wide[40:48], "little")
    if directory > _LARGEST_DIRECTORY:
        raise zipfile.BadZipFile("its directory is larger than 8 MiB")
    file.seek(0)


def in_memory(reader: Reader) -> io.BytesIO:
    """A zip that comes as a stream."""
    held = io.BytesIO()
    while data := reader.read(1 << 20):
        held.write(data)
        if held.tell() > _LARGEST_INNER_ZIP:
            raise CutShortError("a zip of more than 256 MiB inside another archive or a pipe")
    held.seek(0)
    return held
