"""A log -> the lines that match a log pattern, in one pass and in constant memory.

    scanner = Scanner(catalogue.log_patterns())
    for hit in scanner.lines(reader):            # any object with read(size) -> bytes
        for pattern, fields in scanner.match(text_without_head, raw=hit.text): ...

All anchors of all patterns make one Aho-Corasick automaton that runs over blocks of bytes;
Python looks only at lines in which it found something. `\n` and `\r` both end a line (progress
bars), but only `\n` counts in line numbers, as in every editor.
"""

from __future__ import annotations

import collections
import functools
import re
from collections.abc import Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import NamedTuple

from ahocorasick_rs import BytesAhoCorasick, Implementation, MatchKind

from holdfast.analysis.logs.pattern import LogPattern
from holdfast.explain.read.byte_streams import Reader
from holdfast.explain.read.sanitize import decoded

_Found = tuple[int, int, int]
"""which anchor, where it begins and ends"""

BLOCK = 1 << 20
AHEAD = 4
"""blocks that are searched before their turn"""
SHOWN = 4_000
"""bytes of a line that are looked at: all of it, or a window around the anchor"""
BEFORE = 1_000
"""of that window, how much comes before the anchor"""
FOLLOWING = 60
FOLLOWING_BYTES = 32 << 10
BEFORE_BYTES = 8 << 10
TAIL = 64 << 10


class _Block(NamedTuple):
    """Whole lines, or a piece of a line that is longer than a block."""

    data: bytes
    fresh: int
    """before this come bytes that the end of the previous block had already"""
    offset: int
    """of data[0] in the source"""


class Hit:
    """A line that holds an anchor. It keeps a block alive: take what you need and let it go."""

    __slots__ = ("_ahead", "_begin", "_data", "_stop", "number", "offset", "text")

    def __init__(self, block: _Block, begin: int, stop: int, *, number: int, ahead: bytes) -> None:
        self.text = decoded(block.data[begin:stop])
        """without terminal escapes; a window of it when it is very long"""
        self.number = number
        """from 1"""
        self.offset = block.offset + begin
        """in bytes, of the text in the source"""
        self._data = block.data
        self._begin = begin
        self._stop = stop
        self._ahead = ahead

    def place(self, further: int = 0) -> tuple[int, int]:
        """Of the line so many lines further on: its number, and which text in it."""
        return self.number + further, 0

    def whole(self, longest: int) -> str:
        """All of the line, where the text is only a window of it."""
        begin = self._data.rfind(b"\n", max(0, self._begin - longest), self._begin) + 1
        stop = self._data.find(b"\n", self._stop, self._stop + longest)
        return decoded(self._data[begin : stop if stop >= 0 else self._stop + longest])

    def after(
        self, count: int, *, within: int = FOLLOWING_BYTES, longest: int = SHOWN
    ) -> Sequence[str]:
        """Up to so many lines after this one, of any writer, as far as they are within so many
        bytes."""
        rest = self._data[self._stop : self._stop + within]
        rest += self._ahead[: within - len(rest)]
        return [decoded(raw[:longest]) for raw in rest.splitlines()[1 : count + 1]]

    def before(self, count: int, *, within: int = BEFORE_BYTES) -> Sequence[str]:
        """Up to so many lines before this one, as far as its block has them."""
        rest = self._data[max(0, self._begin - within) : self._begin]
        return [decoded(raw[:SHOWN]) for raw in rest.splitlines()[-count:]]


class LogTail:
    """The end of a source: the last lines of each rank. Filled once its lines were read."""

    def __init__(self) -> None:
        self._data = b""
        self._last = 0

    def keep(self, data: bytes, last: int) -> None:
        """The end of the source, and the number of its last line."""
        self._data = data[-TAIL:]
        if len(data) > TAIL:  # begins in the middle of a line
            self._data = re.sub(rb"\A[^\r\n]*", b"", self._data)[1:]
        self._last = last

    def lines(self) -> list[tuple[int, str]]:
        """Number and text of each line that is not blank. Of a progress bar that rewrites its
        line only the last state, as the terminal showed it."""
        raws = self._data.split(b"\n")
        first = self._last - len(raws) + 1
        shown = []
        for number, raw in enumerate(raws, start=first):
            text = decoded(raw.rstrip(b"\r \t").rpartition(b"\r")[2][:SHOWN])
            if text.strip():
                shown.append((number, text))
        return shown


class Scanner:
    def __init__(self, patterns: Iterable[LogPattern]) -> None:
        self._patterns = tuple(patterns)
        meant: dict[bytes, list[int]] = {}
        for index, pattern in enumerate(self._patterns):
            for anchor in pattern.anchors:
                meant.setdefault(anchor.encode(), []).append(index)
        if any(b"\n" in anchor or b"\r" in anchor for anchor in meant):
            raise ValueError("an anchor must be within one line")
        self.anchors = tuple(meant)
        self._meant = tuple(meant.values())
        self._overlap = SHOWN + max(map(len, meant), default=0)

    @functools.cached_property
    def _blockwise(self) -> BytesAhoCorasick:
        # Which anchor of a line is found does not matter here, so take the fastest automaton
        # there is: twice as fast as the others, for some milliseconds and megabytes to build.
        return BytesAhoCorasick(
            self.anchors, implementation=Implementation.DFA, matchkind=MatchKind.LeftmostFirst
        )

    @functools.cached_property
    def _blockwise_in_json(self) -> BytesAhoCorasick:
        """The same for text inside of JSON, where writers escape some characters."""
        forms = dict.fromkeys(form for anchor in self.anchors for form in _in_json(anchor))
        return BytesAhoCorasick(
            tuple(forms), implementation=Implementation.DFA, matchkind=MatchKind.LeftmostFirst
        )

    @functools.cached_property
    def _linewise(self) -> BytesAhoCorasick:
        return BytesAhoCorasick(self.anchors)

    def match(
        self, text: str, *, raw: str | None = None
    ) -> list[tuple[LogPattern, dict[str, str]]]:
        """The patterns found in the text, with their named groups that matched. Anchors may be in
        the prefix that was removed: then give the raw line too."""
        line = (text if raw is None else raw).encode("utf-8", "replace")
        anchors = self._linewise.find_matches_as_indexes(line, overlapping=True)
        meant = sorted({index for anchor, _, _ in anchors for index in self._meant[anchor]})
        found = []
        for pattern in (self._patterns[index] for index in meant):
            match = pattern.regex.search(text)
            if match:
                taking_part = {k: v for k, v in match.groupdict().items() if v is not None}
                found.append((pattern, taking_part))
        return found

    def lines(
        self, reader: Reader, *, tail: LogTail | None = None, in_json: bool = False
    ) -> Iterator[Hit]:
        """Every line with an anchor, in the order written; long lines once per window."""
        automaton = self._blockwise_in_json if in_json else self._blockwise
        blocks = self._searched(self._blocks(reader), automaton)
        before, number, current = b"", 1, next(blocks, None)
        while current is not None:
            block, anchors = current
            following = next(blocks, None)
            ahead = following[0] if following else None
            rest = ahead.data[ahead.fresh :] if ahead else b""
            number = yield from _hits(block, anchors, number=number, ahead=rest)
            if following is None and tail is not None:
                tail.keep(before + block.data[block.fresh :], number)
            before, current = block.data[-TAIL - 1 :], following

    def _searched(
        self, blocks: Iterator[_Block], automaton: BytesAhoCorasick
    ) -> Iterator[tuple[_Block, list[_Found]]]:
        """Each block with the anchors in it. The automaton lets go of the interpreter's lock, so
        on a second core it runs ahead of everything else."""
        find = automaton.find_matches_as_indexes
        with ThreadPoolExecutor(max_workers=1) as pool:
            waiting: collections.deque[tuple[_Block, Future[list[_Found]]]] = collections.deque()
            for block in blocks:
                waiting.append((block, pool.submit(find, block.data)))
                if len(waiting) > AHEAD:
                    first, found = waiting.popleft()
                    yield first, found.result()
            for block, found in waiting:
                yield block, found.result()

    def _blocks(self, reader: Reader) -> Iterator[_Block]:
        kept, fresh, offset = b"", 0, 0
        while new := _fill(reader):
            last = len(new) < BLOCK  # what comes before its last line is read together with it
            end = len(new) if last else new.rfind(b"\n") + 1 or new.rfind(b"\r") + 1
            if end:
                data = b"".join((kept, memoryview(new)[:end]))
                kept, next_fresh = new[end:], 0
            else:
                data = kept + new
                kept, next_fresh = data[-self._overlap :], self._overlap
            yield _Block(data, fresh, offset)
            offset, fresh = offset + len(data) - next_fresh, next_fresh
        if len(kept) > fresh:
            yield _Block(kept, fresh, offset)


def _hits(
    block: _Block, anchors: list[_Found], *, number: int, ahead: bytes
) -> Generator[Hit, None, int]:
    """The lines that hold these anchors; at last, the number of the line after the block."""
    data, counted, done = block.data, 0, block.fresh
    for _, start, end in anchors:
        if end > done:
            begin, stop = _line_around(data, start, end)
            number += data.count(b"\n", counted, begin)
            counted, done = begin, stop
            yield Hit(block, begin, stop, number=number, ahead=ahead)
    return number + data.count(b"\n", counted)


def _in_json(anchor: bytes) -> Iterator[bytes]:
    """As it stands, quoted, and as Go writes it, which escapes what HTML would."""
    yield anchor
    quoted = anchor.replace(b"\\", b"\\\\").replace(b'"', b'\\"').replace(b"\t", b"\\t")
    yield quoted
    for sign, escaped in ((b"<", b"\\u003c"), (b">", b"\\u003e"), (b"&", b"\\u0026")):
        quoted = quoted.replace(sign, escaped)
    yield quoted


def _fill(reader: Reader) -> bytes:
    """A block, less only at the end: a pipe may give it in a thousand pieces."""
    data = reader.read(BLOCK)
    if not data or len(data) == BLOCK:
        return data
    pieces, length = [data], len(data)
    while length < BLOCK and (data := reader.read(BLOCK - length)):
        pieces.append(data)
        length += len(data)
    return b"".join(pieces)


def _line_around(data: bytes, start: int, end: int) -> tuple[int, int]:
    """Where the line that holds data[start:end] begins and stops, or the window of it."""
    begin = data.rfind(b"\n", 0, start) + 1
    begin = max(begin, data.rfind(b"\r", begin, start) + 1)
    stop = data.find(b"\n", end)
    stop = len(data) if stop < 0 else stop
    carriage = data.find(b"\r", end, stop)
    stop = stop if carriage < 0 else carriage
    if stop - begin > SHOWN:
        begin = max(begin, min(start - BEFORE, stop - SHOWN))
        stop = min(stop, begin + SHOWN)
    return begin, stop
