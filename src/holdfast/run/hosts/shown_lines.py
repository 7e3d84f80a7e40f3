"""What the launchers of several hosts print, for one screen: whole lines, each with its node; what
holdfast says on all of them is shown once. Pure.
"""

from __future__ import annotations

from collections import Counter
from typing import NamedTuple

OWN = b"holdfast> "
LONGEST = 16 << 10
"""bytes without a newline that are shown as a line of their own"""
REMEMBERED = 4096
"""different sentences of holdfast; the oldest are forgotten"""


class ShownLine(NamedTuple):
    number: int
    """1 for stdout, 2 for stderr"""
    text: bytes


class ShownLines:
    def __init__(self, nodes: list[str]) -> None:
        width = max(map(len, nodes), default=0)
        self._mark = {node: f"[{node}]{' ' * (width - len(node))} ".encode() for node in nodes}
        self._begun: dict[tuple[str, int], bytes] = {}
        self._said: dict[bytes, Counter[str]] = {}

    def add(self, node: str, number: int, content: bytes) -> list[ShownLine]:
        """The lines that are complete now."""
        text = self._begun.pop((node, number), b"") + content
        *whole, rest = text.split(b"\n")
        if len(rest) > LONGEST:
            whole, rest = [*whole, rest], b""
        if rest:
            self._begun[node, number] = rest
        return [line for one in whole if (line := self._line(node, number, one))]

    def rest(self, node: str) -> list[ShownLine]:
        """What it began and did not end."""
        begun = [(number, self._begun.pop((node, number), b"")) for number in (1, 2)]
        lines = (self._line(node, number, text) for number, text in begun if text)
        return [line for line in lines if line]

    def _line(self, node: str, number: int, text: bytes) -> ShownLine | None:
        # Of a bar that is drawn over itself only the last state is worth a line.
        text = text.rstrip(b"\r").rpartition(b"\r")[2]
        if text.startswith(OWN) and self._is_known(node, text):
            return None
        return ShownLine(number, self._mark[node] + text + b"\n")

    def _is_known(self, node: str, text: bytes) -> bool:
        """Another node has said it as often as this one has now."""
        counts = self._said.setdefault(text, Counter())
        shown = max(counts.values(), default=0)
        counts[node] += 1
        if len(self._said) > REMEMBERED:
            del self._said[next(iter(self._said))]
        return counts[node] <= shown
