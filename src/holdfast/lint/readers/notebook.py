"""A Jupyter notebook -> one Source: all its code cells, run from top to bottom.

Notebooks are usually written with one line of code per line of the file: then places are those of
the file. Otherwise the lines are counted through the cells, and the file is named with 'cells'.
"""

from __future__ import annotations

import bisect
import json
import re
from typing import Any, NamedTuple

from holdfast.analysis.source.source import Source
from holdfast.lint.readers import python_examples

PYTHON_MAGICS = ("time", "timeit", "capture", "prun", "python", "python3")
_CELL_MAGIC = re.compile(r"\s*%%(?P<name>!|\w+)(?P<words>.*)")


class Notebook(NamedTuple):
    source: Source
    text: str
    """its code at the lines and columns that `source` names: for excerpts and comments"""


class NotebookCell(NamedTuple):
    lines: list[str]
    first_line: int
    """in the file"""
    indent: int


def read(text: str, file: str) -> Notebook | str:
    """The program, or why there is none."""
    try:
        document = json.loads(text)
        cells = document["cells"]
        sources = [_lines(cell["source"]) for cell in cells if cell.get("cell_type") == "code"]
    except RecursionError:
        return "its JSON is nested too deeply to be read"
    except (ValueError, TypeError, KeyError, AttributeError):
        return "not a notebook: its JSON has no cells"
    located = _locate(text, sources)
    if located is None:
        joined = "\n".join(line for lines in sources for line in _python(lines)) + "\n"
        return Notebook(python_examples.read_cells(joined, f"{file} (cells)"), joined)
    padded: list[str] = []
    for cell in located:
        padded += [""] * (cell.first_line - 1 - len(padded))
        padded += _python(cell.lines)
    indent = min((cell.indent for cell in located), default=0)
    shown = "\n".join(" " * indent + line for line in padded)
    return Notebook(
        python_examples.read_cells("\n".join(padded) + "\n", file, indent=indent), shown
    )


def _lines(source: Any) -> list[str]:
    whole = source if isinstance(source, str) else "".join(source)
    return whole.split("\n")


def _python(lines: list[str]) -> list[str]:
    """The cell without what `%%bash` and its like hand to another program."""
    magic = next((_CELL_MAGIC.match(line) for line in lines if line.strip()), None)
    if magic is None or magic["name"] in PYTHON_MAGICS:
        return lines
    writes_python = magic["name"] in ("writefile", "file") and magic["words"].endswith(".py")
    return lines if writes_python else [""] * len(lines)


def _locate(text: str, sources: list[list[str]]) -> list[NotebookCell] | None:
    """Where the lines of each cell are, found one after the other in the file's own order; None
    where those of one do not."""
    starts = [0, *(n + 1 for n, character in enumerate(text) if character == "\n")]
    found: list[NotebookCell] = []
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
                return None
            at = offset + 1
            row = bisect.bisect_right(starts, offset)
            places.append((row, offset - starts[row - 1] + 1))
        rows = [row for row, _ in places]
        together = bool(rows) and rows == list(range(rows[0], rows[0] + len(rows)))
        if together:
            found.append(NotebookCell(lines[: len(rows)], rows[0], places[0][1]))
        elif any(lines):
            return None
    return found
