"""Logs in UTF-16, as PowerShell's `>` and some Windows agents write them -> UTF-8."""

from __future__ import annotations

import codecs

from holdfast.explain.read.byte_streams import Reader

_MARKS = {codecs.BOM_UTF16_LE: "utf-16-le", codecs.BOM_UTF16_BE: "utf-16-be"}
SAMPLE = 4096
MOSTLY = 0.8
"""of the characters in a log are ASCII: each is a zero byte and another one …"""
HARDLY = 0.05
"""… and few others have a zero byte where those have none"""


def codec(peek: bytes) -> str:
    """'utf-16-le' or 'utf-16-be' where text begins like this, with or without its mark."""
    if peek[:2] in _MARKS:
        return _MARKS[peek[:2]]
    sample = peek[:SAMPLE]
    pairs = len(sample) // 2
    if pairs < 8:
        return ""
    high, low = sample[1 : 2 * pairs : 2].count(0), sample[0 : 2 * pairs : 2].count(0)
    if high > MOSTLY * pairs and low < HARDLY * pairs:
        return "utf-16-le"
    return "utf-16-be" if low > MOSTLY * pairs and high < HARDLY * pairs else ""


class Utf8:
    """Reads text in another encoding as UTF-8; what cannot be decoded shows as U+FFFD."""

    def __init__(self, reader: Reader, encoding: str) -> None:
        self._reader = reader
        self._decoder = codecs.getincrementaldecoder(encoding)("replace")
        self._ended = False

    def read(self, count: int, /) -> bytes:
        """At most so many bytes: a character of two may become three."""
        while not self._ended:
            data = self._reader.read(max(2, count // 3 * 2))
            self._ended = not data
            text = self._decoder.decode(data, final=self._ended).replace("\ufeff", "")
            if text:
                return text.encode("utf-8", "replace")
        return b""
