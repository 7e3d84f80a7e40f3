"""A Jupyter notebook -> one Source: all its code cells, run from top to bottom.

Notebooks are usually written with one line of code per line of the file: then places are those of
the file. Otherwise the lines are counted through the cells, and the file is named with 'cells'.
"""

from __future__ import annotations

import bisect
import json
from typing import Any, NamedTuple

from holdfast.lint import mending
from holdfast.source.nouns import Source


class Cell(NamedTuple):
    lines: list[str]
    first_line: int
    """in the file; 0 where its lines do not stand one below the other"""
    indent: int


def read(text: str, file: str) -> Source | str:
    """The program, or why there is none."""
    try:
        document = json.loads(text)
        cells = document["cells"]
        sources = [_lines(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return "is no notebook: its JSON has no cells"
    located = _locate(text, sources)
    if any(not cell.first_line for cell in located):
        joined = [line for lines in sources for line in lines]
        return mending.read("\n".join(joined) + "\n", f"{file} (cells)")
    padded: list[str] = []
    for cell in located:
        padded += [""] * (cell.first_line - 1 - len(padded))
        padded += cell.lines
    indent = min((cell.indent for cell in located), default=0)
    return mending.read("\n".join(padded) + "\n", file, indent=indent)


def _lines(source: Any) -> list[str]:
    whole = source if isinstance(source, str) else "".join(source)
    return whole.split("\n")


def _locate(text: str, sources: list[list[str]]) -> list[Cell]:
    """Where the lines of each cell stand, found one after the other in the file's own order."""
    starts = [0, *(n + 1 for n, character in enumerate(text) if character == "\n")]
    found: list[Cell] = []
    at = 0
    for lines in sources:
        places: list[tuple[int, int]] = []
        for number, line in enumerate(lines):
            last = number == len(lines) - 1
            if last and not line:
                continue
            end = '"' if last else '\\n"'
            offset = text.find(f'"{json.dumps(line, ensure_ascii=False)[1:-1]}{end}', at)
            if offset < 0:
                places = []
                break
            at = offset + 1
            row = bisect.bisect_right(starts, offset)
            places.append((row, offset - starts[row - 1] + 1))
        rows = [row for row, _ in places]
        together = bool(rows) and rows == list(range(rows[0], rows[0] + len(rows)))
        if together:
            found.append(Cell(lines[: len(rows)], rows[0], places[0][1]))
        elif any(lines):
            found.append(Cell(lines, 0, 0))
    return found
