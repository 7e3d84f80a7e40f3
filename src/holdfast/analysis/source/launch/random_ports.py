"""Which numbers an expression that draws a port can give: `$(( 40000 + RANDOM % 20000 ))`.

Interval arithmetic over what people write in shell and Python; None where it cannot be told.
"""

from __future__ import annotations

import re

Span = tuple[int, int]

SHELLS_RANDOM = 32767
"""bash: RANDOM is 0 to 32767"""
MOST = 10**9

_DRAWS = re.compile(r"RANDOM|\bshuf\b|\brand(?:int|range|om)\b|\bjot\b|\$\$|JOB_?ID|UID|\bdate\b")
_PIECE = re.compile(r"\s*(?:(\d+)|\$?\{?([A-Za-z_]\w*)\}?|(\$\$|\$\{?\d+\}?)|([-+*/%()]))")


def is_drawn(written: str) -> bool:
    """Whether it differs from one run to the next."""
    return bool(_DRAWS.search(written))


def span(written: str) -> Span | None:
    """The least and the greatest number it can give."""
    text = written.strip().strip("\"'")
    for pattern in (_SHUF, _SEQ_SHUF, _JOT):
        if match := pattern.search(text):
            return _ordered(int(match[1]), int(match[2]))
    if match := _RANDINT.search(text):
        return _ordered(int(match[2]), int(match[3]) - (match[1] == "randrange"))
    if match := re.fullmatch(r"\$\(\((.*)\)\)|\$\[(.*)\]", text, re.DOTALL):
        return _arithmetic(match[1] or match[2] or "")
    if match := re.fullmatch(r"(?:\$\(|`)\s*expr\s(.*)(?:\)|`)", text, re.DOTALL):
        return _arithmetic(match[1].replace("\\*", "*"))
    return None


_SHUF = re.compile(r"\bshuf\b[^|;]*?(?:-i\s*|--input-range[= ])(\d{1,6})-(\d{1,6})")
_SEQ_SHUF = re.compile(r"\bseq\s+(\d{1,6})\s+(\d{1,6})\b.*\bshuf\b", re.DOTALL)
_JOT = re.compile(r"\bjot\s+-r\s+1\s+(\d{1,6})\s+(\d{1,6})")
_RANDINT = re.compile(r"\b(randint|randrange)\(\s*(\d{1,6})\s*,\s*(\d{1,6})\s*\)")


def _ordered(low: int, high: int) -> Span | None:
    return (low, high) if low <= high else None


def _arithmetic(text: str) -> Span | None:
    pieces: list[str] = []
    at = 0
    text = text.strip()
    while at < len(text):
        match = _PIECE.match(text, at)
        if match is None:
            return None
        pieces.append(next(group for group in match.groups() if group))
        at = match.end()
    if len(pieces) > 40:
        return None
    reader = _PortArithmetic(pieces)
    result = reader.sum()
    return None if result is None or reader.pieces or not _bounded(result) else result


def _bounded(result: Span) -> bool:
    return result[1] < MOST and result[0] >= 0


class _PortArithmetic:
    """Recursive descent; sums of products of numbers, names and brackets."""

    def __init__(self, pieces: list[str]) -> None:
        self.pieces = pieces

    def take(self, *wanted: str) -> str:
        return self.pieces.pop(0) if self.pieces and self.pieces[0] in wanted else ""

    def sum(self) -> Span | None:
        left = self.product()
        while left is not None and (sign := self.take("+", "-")):
            right = self.product()
            if right is None:
                return None
            left = (
                (left[0] + right[0], left[1] + right[1])
                if sign == "+"
                else (left[0] - right[1], left[1] - right[0])
            )
        return left

    def product(self) -> Span | None:
        left = self.atom()
        while left is not None and (sign := self.take("*", "/", "%")):
            right = self.atom()
            if right is None:
                return None
            left = _multiplied(left, sign, right)
        return left

    def atom(self) -> Span | None:
        if not self.pieces:
            return None
        piece = self.pieces.pop(0)
        if piece == "(":
            inside = self.sum()
            return inside if self.take(")") else None
        if piece.isdigit():
            return int(piece), int(piece)
        if piece == "RANDOM":
            return 0, SHELLS_RANDOM
        return None if piece in "+-*/%)" else (0, MOST)  # a job's id, a process id: no bound


def _multiplied(left: Span, sign: str, right: Span) -> Span | None:
    if sign == "*":
        return left[0] * right[0], left[1] * right[1]
    if right[0] != right[1] or right[0] <= 0 or left[0] < 0:
        return None
    by = right[0]
    if sign == "/":
        return left[0] // by, left[1] // by
    low = left[0] if left[0] // by == left[1] // by else 0
    return (low % by, left[1] % by) if left[0] // by == left[1] // by else (0, by - 1)
