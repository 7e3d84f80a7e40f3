"""The process in which patterns of a user's own rules are searched.

A regular expression of Python's can take longer than the universe lasts, holds the interpreter's
lock meanwhile, and no other thread can end it. So it runs here, and the kernel ends this process
when one pattern has used BUDGET seconds of processor time on one frame (an interval timer, whose
signal nothing handles): a machine that is busy costs a pattern nothing. Which pattern it was, is in
the page that the parent shares (rule_process.py). No frame changes anything here that a later one
needs, so the parent starts the process again without that pattern and sends the frame once more.

It is started by its path, isolated and without site-packages: the standard library only. A frame is
FRAME and whole lines; an answer is one JSON document a line.
"""

from __future__ import annotations

import json
import mmap
import re
import resource
import signal
import socket
import struct
import sys
import warnings
from collections.abc import Iterator
from typing import Any

FRAME = struct.Struct(">QQdI")
"""number of the stream, of its first line, when it came, length"""
CURRENT = struct.Struct("=i")
BUDGET = 1.0
"""seconds of processor time for one pattern and one frame of lines"""
MEMORY = 1 << 30
LONGEST = 4_000
"""characters of a line that are searched"""
_ESCAPES = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
_STARTS = re.compile(r"""\](?::\s?| )|:\ ?"|: |[|>0-9Z-] """)
"""what may end a prefix that a launcher or a logger puts before each line"""
_MOST_STARTS = 12


class Pattern:
    def __init__(self, told: dict[str, Any]) -> None:
        self.index = int(told["index"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            self.regex = re.compile(told["pattern"])
        self.reads_number = bool(told["number"])
        self.above, self.below = told["above"], told["below"]
        self.literal = needed_literal(told["pattern"]).encode()
        self.after_prefix = bool(told["after_prefix"]) and told["pattern"].startswith("^")
        """`^` may also mean: behind what a launcher wrote before the line"""

    def find(self, line: str) -> tuple[int, re.Match[str]] | None:
        """Where what it matched in begins, and the match."""
        if found := self.regex.search(line):
            return 0, found
        if self.after_prefix:
            for count, start in enumerate(_STARTS.finditer(line)):
                if count == _MOST_STARTS:
                    break
                if found := self.regex.search(line[start.end() :]):
                    return start.end(), found
        return None

    def value(self, found: re.Match[str]) -> float | None:
        """None where what was captured is no number."""
        text = found["value"] if "value" in self.regex.groupindex else found[1]
        try:
            return float((text or "").replace(",", "").replace("_", "x"))
        except ValueError:
            return None

    def exceeds(self, value: float) -> bool:
        above, below = self.above, self.below
        return (above is not None and value > above) or (below is not None and value < below)


def needed_literal(pattern: str) -> str:
    """A text that every line it matches contains, to pass over most lines quickly; '' where none is
    known."""
    try:
        parser = getattr(re, "_parser", None) or __import__("sre_parse")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            parsed = parser.parse(pattern)
        if parsed.state.flags & re.IGNORECASE:
            return ""
        return max(_literals(parsed, parser), key=len, default="")
    except Exception:  # noqa: BLE001 - a private module of Python: without it all lines are searched
        return ""


def _literals(parsed: Any, parser: Any) -> Iterator[str]:
    run = ""
    for operation, argument in parsed:
        if operation is parser.LITERAL and not 0xD800 <= argument <= 0xDFFF:
            run += chr(argument)
            continue
        if run:
            yield run
        run = ""
        if operation is parser.SUBPATTERN and not (argument[1] or argument[2]):
            yield from _literals(argument[3], parser)
    if run:
        yield run


class Worker:
    def __init__(self, told: dict[str, Any], current: mmap.mmap) -> None:
        self.patterns = [Pattern(one) for one in told["patterns"]]
        self.apart = float(told["apart"])
        """seconds between two reports of one pattern in one stream; those between are counted"""
        self.quoted = int(told["quoted"])
        self._current = current
        self._reported: dict[tuple[int, int, bool], float] = {}
        self._left_out: dict[tuple[int, int, bool], int] = {}

    def take(self, stream: int, number: int, at: float, data: bytes) -> Iterator[dict[str, Any]]:
        if b"\x1b" in data:
            data = _ESCAPES.sub(b"", data)
        split: list[tuple[int, bytes]] | None = None
        for pattern in self.patterns:
            if pattern.literal and pattern.literal not in data:
                continue
            if split is None:
                split = list(_lines(data, number))
            CURRENT.pack_into(self._current, 0, pattern.index)
            signal.setitimer(signal.ITIMER_VIRTUAL, BUDGET)
            yield from self._search(pattern, split, stream, at)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
        CURRENT.pack_into(self._current, 0, -1)

    def _search(
        self, pattern: Pattern, lines: list[tuple[int, bytes]], stream: int, at: float
    ) -> Iterator[dict[str, Any]]:
        for number, raw in lines:
            if pattern.literal and pattern.literal not in raw:
                continue
            line = raw[: 4 * LONGEST].decode("utf-8", "replace")[:LONGEST]
            if (match := pattern.find(line)) is None:
                continue
            start, found = match
            told: dict[str, Any] = {"rule": pattern.index, "stream": stream, "number": number}
            beyond = False
            if pattern.reads_number:
                value = pattern.value(found)
                beyond = value is not None and pattern.exceeds(value)
                told |= {"value": str(value) if value is not None else "", "beyond": beyond}
                told["text"] = found[0][:60] if value is None else ""
            if count := self._counted((pattern.index, stream, beyond), at):
                yield {
                    **told,
                    "at": at,
                    "line": line[: self.quoted],
                    "start": start,
                    "count": count,
                }

    def _counted(self, key: tuple[int, int, bool], at: float) -> int:
        """How many lines this report stands for; 0 where it waits for the next one."""
        waiting = self._left_out.pop(key, 0) + 1
        before = self._reported.get(key)
        if before is not None and at < before + self.apart:
            self._left_out[key] = waiting
            return 0
        self._reported[key] = at
        return waiting


def _lines(data: bytes, number: int) -> Iterator[tuple[int, bytes]]:
    """Each with its number; a progress bar that rewrites its line is as many as it has states."""
    for offset, line in enumerate(data.split(b"\n")):
        for state in line.split(b"\r") if b"\r" in line else (line,):
            if state:
                yield number + offset, state


def main(connection: socket.socket, page: int) -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    signal.signal(signal.SIGVTALRM, signal.SIG_DFL)
    current = mmap.mmap(page, CURRENT.size)
    stream = connection.makefile("rb", buffering=1 << 18)
    worker = Worker(json.loads(stream.readline()), current)
    while len(header := stream.read(FRAME.size)) == FRAME.size:
        number, line, at, length = FRAME.unpack(header)
        data = stream.read(length)
        if len(data) < length:
            return
        try:
            hits = list(worker.take(number, line, at, data))
            answer = {"done": length, "hits": hits}
        except (MemoryError, RecursionError) as problem:
            signal.setitimer(signal.ITIMER_VIRTUAL, 0)
            told = f"it needs more than {MEMORY >> 20} MiB of memory"
            if isinstance(problem, RecursionError):
                told = "it is nested too deeply"
            answer = {"failed": CURRENT.unpack_from(current)[0], "why": told}
            connection.sendall(json.dumps(answer).encode() + b"\n")
            return
        connection.sendall(json.dumps(answer).encode() + b"\n")


if __name__ == "__main__":
    main(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2]))
