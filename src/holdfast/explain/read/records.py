"""Logs whose lines are JSON records -> the lines of text in them. Pure, never raises.

Container runtimes, log agents and JSON loggers wrap each line, or each message, into a record:
`{"log": "text\\n", "stream": "stderr", "time": "…"}`. What a record says of its writer is written
before each line as the prefixes that `line_prefix` reads; a message of several lines, such as a
traceback, becomes several lines with the record's number. Lines that hold no record stay as they
are: NCCL prints plain text between them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import cast

import msgspec

from holdfast.explain.read import line_prefix, record_fields
from holdfast.explain.read.sanitize import plain
from holdfast.explain.read.scan import Hit

LARGEST = 1 << 20
"""bytes of a record that are looked at"""
LATEST = 400
"""characters that may come before a record: the prefixes of a container runtime"""
MOST_LINES = 400
"""of one record"""
NESTED = 3
"""records in records: an agent's around a runtime's around the program's own"""
SAMPLE = 40
"""lines by which a log of records is recognised"""
WITHIN = 256 << 10
"""bytes after a record in which its traceback continues"""

_FIELD_LINE = re.compile(
    r'\s+"(?:textPayload|message|MESSAGE|log|msg|line)" ?: ("(?:[^"\\]|\\.)*"),?\s*'
)
"""of a document that was written with one field to a line: `gcloud logging read --format=json`"""


def in_use(lines: Sequence[str]) -> bool:
    """Whether some of the first lines are records. One is enough: the rest may be plain text."""
    return any(
        ("{" in line or '"' in line) and texts(line) != [line]
        for line in [line for line in lines if line.strip()][:SAMPLE]
    )


def texts(line: str) -> list[str]:
    """The lines in a record, each with its writer's prefixes; the line itself if it is none."""
    found = _texts(line, NESTED)
    if found is None and (field := _FIELD_LINE.fullmatch(line)):
        text = _decode(field[1])
        found = text.splitlines() if isinstance(text, str) else None
    return [plain(one) for one in found[:MOST_LINES]] if found else [line]


class RecordLine:
    """One of the lines in the record that a scanner hit; what follows is unwrapped as well."""

    __slots__ = ("_hit", "_index", "_rest", "number", "text")

    def __init__(self, hit: Hit, lines: Sequence[str], index: int) -> None:
        self.text = lines[index]
        self.number = hit.number
        self._index = index
        self._rest = lines[index + 1 :]
        self._hit = hit

    def place(self, further: int = 0) -> tuple[int, int]:
        """Of the line so many lines further on: its number, and which text in it. Records that
        a message runs on into are lines of a stream: one text each."""
        beyond = further - len(self._rest)
        return (self.number + beyond, 0) if beyond > 0 else (self.number, self._index + further)

    def after(self, count: int) -> Sequence[str]:
        """Up to so many lines after this one, of any writer."""
        found = list(self._rest)
        if len(found) < count:
            for raw in self._hit.after(count, within=WITHIN, longest=LARGEST):
                found += texts(raw)
        return found[:count]

    def before(self, count: int) -> Sequence[str]:
        """The last line of each of the records before this one."""
        return [texts(raw)[-1] for raw in self._hit.before(count)]


def unwrapped(hits: Iterator[Hit]) -> Iterator[RecordLine]:
    """Every line of every record with a hit. A scanner shows a long line in several windows;
    here it comes once, and whole."""
    last = 0
    for hit in hits:
        if hit.number == last:
            continue
        last = hit.number
        lines = texts(hit.whole(LARGEST))
        for index in range(len(lines)):
            yield RecordLine(hit, lines, index)


def _texts(line: str, depth: int) -> list[str] | None:
    begin = line.find("{", 0, LATEST)
    end = line.rfind("}")
    if begin < 0 or end < begin or depth == 0:
        return None
    if line[:begin].strip() and line_prefix.head(line[:begin]).text.strip():
        return None  # JSON within a sentence
    record = _decode(line[begin : end + 1])
    if not isinstance(record, dict):
        return None
    fields = record_fields.read(cast("Mapping[str, object]", record))
    if fields is None:
        return None
    before = line[:begin] + fields.prefix
    inner = _texts(fields.text, depth - 1) if fields.text.lstrip().startswith("{") else None
    message = inner if inner is not None else fields.text.rstrip().splitlines() or [""]
    first, *rest = [*message, *fields.exception]
    return [before + fields.level + first, *(before + one for one in rest)]


def _decode(text: str) -> object:
    """None where it is no JSON. Python's own writer, unlike the standard, has NaN."""
    try:
        return msgspec.json.decode(text.encode("utf-8", "replace"))
    except (msgspec.MsgspecError, ValueError, RecursionError):
        if "NaN" not in text and "Infinity" not in text:
            return None
    try:
        return cast("object", json.loads(text))
    except (ValueError, RecursionError):
        return None
