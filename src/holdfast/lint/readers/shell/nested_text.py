"""Text inside text: which byte of the file a byte of a quoted script, or of a RUN line, is.

A script in `bash -c "…"` is parsed as a separate text, after one round of quoting is taken off;
its places must still be those of the file.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Iterator, Sequence

from holdfast.findings import Place


class FileText:
    """A whole file, or a fenced block of one: bytes -> line and column."""

    def __init__(self, text: str, file: str, *, first_line: int = 1, indent: int = 0) -> None:
        # a lone surrogate or a NUL is one character of its line and means nothing to a shell
        self.data = text.replace("\r\n", "\n").replace("\0", " ").encode("utf-8", "replace")
        self.file = file
        self._first_line = first_line
        self._indent = indent
        starts = (i + 1 for i, byte in enumerate(self.data) if byte == 0x0A)
        self._starts = [0, *starts]
        self._columns: dict[int, Sequence[int]] = {}

    def place(self, byte: int) -> Place:
        row = max(bisect.bisect_right(self._starts, byte) - 1, 0)
        column = self._column(row, byte - self._starts[row]) + self._indent
        return Place(file=self.file, line=row + self._first_line, column=column)

    def _column(self, row: int, offset: int) -> int:
        """In characters, counted from 1."""
        if row not in self._columns:
            end = self._starts[row + 1] if row + 1 < len(self._starts) else len(self.data)
            line = self.data[self._starts[row] : end]
            self._columns[row] = (
                range(1, len(line) + 2)
                if line.isascii()
                else [0, *itertools.accumulate(int(byte & 0xC0 != 0x80) for byte in line)]
            )
            if not line.isascii():
                self._columns[row] = [count + 1 for count in self._columns[row]]
        known = self._columns[row]
        return known[min(offset, len(known) - 1)]

    def whole(self) -> NestedText:
        return NestedText(self, self.data)


class NestedText:
    """A text to parse, each byte of which stands somewhere in the ground."""

    def __init__(
        self, ground: FileText, data: bytes, *, base: int = 0, offsets: Sequence[int] | None = None
    ) -> None:
        self.ground = ground
        self.data = data
        self._base = base
        self._offsets = offsets

    def origin(self, byte: int) -> int:
        """The byte of the ground that this byte is."""
        if self._offsets is None:
            return self._base + byte
        if not self._offsets:
            return self._base
        return self._offsets[min(byte, len(self._offsets) - 1)]

    def place(self, byte: int) -> Place:
        return self.ground.place(self.origin(byte))

    def part(self, start: int, end: int) -> NestedText:
        if self._offsets is None:
            return NestedText(self.ground, self.data[start:end], base=self._base + start)
        offsets = self._offsets[start:end] or [self.origin(start)]
        return NestedText(self.ground, self.data[start:end], offsets=offsets)

    def runs(self, start: int, end: int) -> Iterator[tuple[int, int]]:
        """A stretch cut where the file has something in between."""
        if self._offsets is None or start >= end:
            yield start, end
            return
        begin = start
        for byte in range(start + 1, end):
            if self._offsets[byte] != self._offsets[byte - 1] + 1:
                yield begin, byte
                begin = byte
        yield begin, end

    def without(self, cuts: Sequence[tuple[int, int]]) -> NestedText:
        """Some stretches (in order, not touching each other) taken out."""
        kept: list[int] = []
        pieces: list[bytes] = []
        at = 0
        for start, end in (*cuts, (len(self.data), len(self.data))):
            kept.extend(self.origin(byte) for byte in range(at, start))
            pieces.append(self.data[at:start])
            at = end
        return NestedText(self.ground, b"".join(pieces), base=self._base, offsets=kept)
