"""Text copied from a terminal is cut at its width: rejoin such lines. Pure.

A terminal cuts every longer line at exactly one width. So a text is taken for cut only if no line
is longer than some width, several lines have just that width, and what follows them mostly does
not look like the beginning of a line. The number of lines stays what it was, so that the places
we quote are those of the file.
"""

from __future__ import annotations

import re

from holdfast.explain.read import line_prefix

NARROWEST, WIDEST = 60, 300
"""characters: a terminal is hardly narrower, and a wider one cuts hardly anything"""
SEVERAL = 2
MOSTLY = 0.6

_BEGINNING = re.compile(
    r"\s{2}|\t|\{\"|Traceback |File \"|frame #\d|#\d+ |[-=*#>]{3}|$"
    r"|[\w.]{1,80}(?:Error|Exception|Warning)\b"
)
"""how lines begin that have no head: indented ones, tracebacks, C++ frames, rules, JSON.
A single blank is rather where a line was cut between two words."""


def rejoined(data: bytes) -> bytes:
    """The same text with its long lines whole; the very same bytes when it is not cut."""
    lines = data.decode("utf-8", "replace").split("\n")
    width = max(map(len, lines))
    full = [n for n, line in enumerate(lines[:-1]) if len(line) == width]
    going_on = {n for n in full if not _begins(lines[n + 1])}
    if not NARROWEST <= width <= WIDEST or len(going_on) < max(SEVERAL, MOSTLY * len(full)):
        return data
    if len({lines[n] for n in going_on}) == 1:  # one line many times over
        return data
    return "\n".join(_joined(lines, going_on)).encode()


def _begins(line: str) -> bool:
    return bool(_BEGINNING.match(line)) or bool(line_prefix.head(line).grammar)


def _joined(lines: list[str], going_on: set[int]) -> list[str]:
    """Each with what follows it, and an empty line for every one that was taken."""
    out: list[str] = []
    taken = 0
    for number, line in enumerate(lines):
        if number - 1 in going_on:
            out[-1 - taken] += line
            out.append("")
            taken += 1
        else:
            out.append(line)
            taken = 0
    return out
