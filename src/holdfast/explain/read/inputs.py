"""Paths and stdin -> everything there is to read, one after the other, within bounds.

    for one in sources(["runs/", "bundle.tar.gz", "-"], stdin=sys.stdin.buffer):
        if isinstance(one, Source):     # could not be read, or was skipped: says why
            ...
        elif looks_like_a_dump(one.peek()):
            data = one.whole(LARGEST_DUMP)
        else:
            for hit in scanner.lines(one): ...
        read.append(one.source("log"))  # its problem is known once it was read

How a file is packed shows in its first bytes, not in its name. Pipes, devices and
sockets in folders are never opened: to open the pipe of a flight recorder, or a tape, is an act.
"""

from __future__ import annotations

import io
import os
import stat
from collections.abc import Callable, Iterable, Iterator, Sequence

from holdfast.analysis.logs.wreckage import InputSource
from holdfast.errors import ConfigError
from holdfast.explain.read import archives, folders, utf16
from holdfast.explain.read.byte_streams import (
    CutShortError,
    FileBudget,
    Reader,
    TotalBudget,
    Unpacked,
    packing,
    unreadable,
)
from holdfast.explain.read.sanitize import plain
from holdfast.text import size as size_words

PEEK = 64 << 10
LARGEST_PICKLE = 256 << 20
"""a flight-recorder dump of 2,000 entries has a few MiB"""
STDIN = "<stdin>"
_LAYERS = 3
"""gzip around tar is one; more than three are a puzzle, not a log"""
_PIPES = ("/dev/fd/", "/dev/stdin", "/proc/self/fd/")
"""names that a shell gives: `holdfast explain <(ssh node7 dmesg)`"""
_TEXT_CONTROLS = bytes((7, 8, 9, 10, 12, 13, 27))
_BINARY = bytes(set(range(1, 32)) - set(_TEXT_CONTROLS)) + b"\x7f"


class Opened:
    """Something to read, once, from its beginning; good until the next one is asked for."""

    def __init__(self, name: str, reader: Reader, *, size: int = 0, path: str = "") -> None:
        self.name = plain(name)
        """as the user would name it: 'bundle.tar.gz: rank0.log'"""
        self.size = size
        """in bytes; 0 when not known"""
        self.path = path
        """of a plain file; '' within archives, packed files and pipes"""
        self.problem = ""
        """why not all of it could be read; known when read() has answered b''"""
        self.progress: Callable[[int], None] | None = None
        """hears how many bytes were read"""
        self._reader = reader
        self._ahead = b""
        self._given = 0

    def peek(self) -> bytes:
        """Its first 64 KiB, which stay to be read."""
        while len(self._ahead) < PEEK and (data := self._next(PEEK - len(self._ahead))):
            self._ahead += data
        return self._ahead[:PEEK]

    def read(self, count: int, /) -> bytes:
        """At most so many bytes; b'' at the end. Never raises."""
        if self._ahead:
            data, self._ahead = self._ahead[:count], self._ahead[count:]
            return data
        return self._next(count)

    def whole(self, limit: int) -> bytes:
        """All of it, for readers that need it at once; cut at the limit."""
        pieces, left = [], limit
        while left and (data := self.read(min(left, 1 << 20))):
            pieces.append(data)
            left -= len(data)
        if not left and self.read(1):
            self.problem = f"read up to {size_words(limit)}"
        return b"".join(pieces)

    def source(self, kind: str, *, rank: int | None = None) -> InputSource:
        size = self.size or self._given
        return InputSource(name=self.name, kind=kind, rank=rank, size=size, problem=self.problem)

    def _next(self, count: int) -> bytes:
        if self.problem:
            return b""
        try:
            data = self._reader.read(count) or b""  # None: nothing there now, and never blocks
        except CutShortError as why:
            self.problem = str(why)
        except OSError as error:
            self.problem = f"read only in part: {error.strerror or error}"
        else:
            self._given += len(data)
            if self.progress:
                self.progress(len(data))
            return data
        return b""


def sources(paths: Sequence[str], stdin: Reader | None = None) -> Iterator[Opened | InputSource]:
    """Everything under these paths, in a stable order; '-', or no path at all, is stdin."""
    wanted = list(dict.fromkeys(paths)) or ["-"]
    for path in wanted:
        if path == "-" and stdin is None:
            raise ConfigError(
                "nothing to read: no path was given, and nothing is piped in",
                hint="holdfast explain PATH…, or … | holdfast explain -",
            )
        if path != "-" and not os.path.exists(path):
            where = "is a broken link" if os.path.islink(path) else "does not exist"
            raise ConfigError(f"{plain(path)} {where}")
    return _all(wanted, stdin)


def _all(paths: Iterable[str], stdin: Reader | None) -> Iterator[Opened | InputSource]:
    total, walk = TotalBudget(), folders.Walk()
    for path in paths:
        if path == "-":
            assert stdin is not None
            opened = Opened(STDIN, _Counted(stdin, budget := FileBudget(0, total)))
            yield from _unwrapped(opened, budget)
            continue
        for found in walk.under(path):
            yield from [found] if isinstance(found, InputSource) else _file(found, total)


class _Counted:
    """A pipe: how much is packed shows only as it comes."""

    def __init__(self, reader: Reader, budget: FileBudget) -> None:
        self._reader = reader
        self._budget = budget

    def read(self, count: int, /) -> bytes:
        data = self._reader.read(count)
        self._budget.packed += len(data or b"")
        return data


def _file(path: str, total: TotalBudget) -> Iterator[Opened | InputSource]:
    pipe = path.startswith(_PIPES)
    try:
        # Never block on a pipe, and never make a terminal the controlling one.
        number = os.open(
            path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOCTTY | (not pipe and os.O_NONBLOCK)
        )
    except OSError as error:
        yield unread(path, f"could not be opened: {error.strerror}")
        return
    with io.FileIO(number) as file:
        status = os.fstat(number)
        if not (stat.S_ISREG(status.st_mode) or (pipe and stat.S_ISFIFO(status.st_mode))):
            yield unread(path, "skipped: not a regular file")
            return
        budget = FileBudget(status.st_size, total)
        reader: Reader = _Counted(file, budget) if pipe else file
        opened = Opened(path, reader, size=status.st_size, path=path)
        yield from _unwrapped(opened, budget, file=None if pipe else file)


def _unwrapped(
    opened: Opened,
    budget: FileBudget,
    *,
    file: io.FileIO | None = None,
    layers: int = 0,
    inside: int = 0,
) -> Iterator[Opened | InputSource]:
    """The thing itself, or what is packed in it."""
    if encoding := utf16.codec(opened.peek()):
        opened = Opened(opened.name, utf16.Utf8(opened, encoding), size=opened.size)
    peek = opened.peek()
    why_not = unreadable(peek) or _not_a_log(peek, opened.size)
    make = packing(peek)
    archive = archives.is_tar(peek) or archives.is_zip(peek)
    if make and layers >= _LAYERS:
        why_not = "compressed too many times over"
    elif archive and inside > 1:
        why_not = "an archive in an archive in an archive: unpack it first"
    if why_not:
        yield unread(opened.name, why_not, size=opened.size)
    elif make:
        inner = Opened(opened.name, Unpacked(opened, make, budget))
        yield from _unwrapped(inner, budget, layers=layers + 1, inside=inside)
    elif archive:
        yield from _members(opened, budget, file=file, layers=layers, inside=inside + 1)
    else:
        yield opened


def _members(
    opened: Opened, budget: FileBudget, *, file: io.FileIO | None, layers: int, inside: int
) -> Iterator[Opened | InputSource]:
    try:
        if archives.is_tar(opened.peek()):
            members = archives.tar_members(opened)
        else:
            members = archives.zip_members(file or archives.in_memory(opened), budget)
        for count, member in enumerate(members):
            name = f"{opened.name}: {member.name.removeprefix('./')}"
            if count >= folders.MOST_FILES:
                yield unread(opened.name, f"only its first {count:,} members were read")
                return
            if member.reader is None:
                yield from [unread(name, member.problem)] if member.problem else []
            elif folders.hidden(os.path.basename(member.name)):
                yield unread(name, "skipped: hidden")
            else:
                inner = Opened(name, member.reader, size=member.size)
                yield from _unwrapped(inner, budget, layers=layers, inside=inside)
    except CutShortError as why:
        yield unread(opened.name, opened.problem or str(why), size=opened.size)


def unread(name: str, problem: str, *, size: int = 0) -> InputSource:
    return InputSource(name=plain(name), kind="unread", size=size, problem=problem)


def _not_a_log(peek: bytes, size: int) -> str:
    """Why data that begins like this is skipped; '' where it may be a log or a dump."""
    if peek.startswith(b"\x80"):
        return "skipped: too large for a dump" if size > LARGEST_PICKLE else ""
    if peek[8:10] in (b'{"', b"{ ") and 2 < int.from_bytes(peek[:8], "little") < size:
        return "skipped: safetensors weights, not a log"
    if archives.is_zip(peek) or archives.is_tar(peek) or packing(peek):
        return ""
    # A log that was truncated while its writer had it open begins with a hole: NULs.
    written = peek.translate(None, b"\0")
    odd = len(written) - len(written.translate(None, _BINARY))
    return "skipped: binary data, not a log" if odd > len(written) // 20 else ""
