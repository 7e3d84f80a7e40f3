"""`# holdfast: ignore[slug]` on a line, on the line above, or for a whole file.

In Markdown `<!-- holdfast: ignore[slug] -->`, which alone before a fence counts for the block.
"""

from __future__ import annotations

import ast
import bisect
import re
from typing import NamedTuple

from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source
from holdfast.findings import Finding
from holdfast.lint.lines import lines as lines_of
from holdfast.lint.readers.blocks import FENCE

_COMMENT = re.compile(
    # not where a text or a string only mentions it
    r"(?<![`'\"])(?:#|<!--)\s*holdfast:\s*(?P<what>ignore(?:-file)?)\b"
    r"\s*(?:\[(?P<names>[^\]]*)\])?"
)
EVERYTHING = frozenset({"*"})


class IgnoreComment(NamedTuple):
    line: int
    whole_file: bool
    alone: bool
    """nothing else is on its line"""
    names: frozenset[str]


class IgnoreComments:
    """What a file asks lint to ignore."""

    def __init__(self, text: str) -> None:
        self.directives = _directives(text) if "holdfast:" in text else []
        self._lines = lines_of(text) if self.directives else []
        self._commands: list[int] = []
        self._statements: tuple[Program, Statements] | None = None
        self._on_line: dict[int, set[str]] = {}
        self._in_file: set[str] = set()
        for one in self.directives:
            if one.whole_file:
                self._in_file |= one.names
                continue
            lines = [one.line]
            if one.alone:
                lines = self._below(one.line)
            for line in lines:
                self._on_line.setdefault(line, set()).update(one.names)

    def _below(self, line: int) -> list[int]:
        """The line under a comment on a line of its own; a whole block where that opens a fence."""
        following = line + 1
        while following <= len(self._lines) and not self._lines[following - 1].strip():
            following += 1
        if following > len(self._lines):
            return [line]
        opened = FENCE.match(self._lines[following - 1])
        if not opened:
            return [line, following]
        for last in range(following + 1, len(self._lines) + 1):
            closing = FENCE.match(self._lines[last - 1])
            if closing and closing["fence"].startswith(opened["fence"]):
                break
        else:
            last = len(self._lines)
        return list(range(following, last + 1))

    def hides(self, finding: Finding, source: Source) -> bool:
        if not self.directives or finding.place is None:
            return False
        lines = {finding.place.line, self._first_line(finding.place.line, source)}
        names = self._in_file.union(*(self._on_line.get(line, set()) for line in lines))
        return bool(names & {"*", *names_of(finding.code, finding.slug)})

    def _first_line(self, line: int, source: Source) -> int:
        """Of the statement or command that this line belongs to."""
        if source.program is not None:
            return self._statements_of(source.program).first_line(line)
        self._commands = self._commands or _command_lines(self._lines)
        return self._commands[line - 1] if 0 < line <= len(self._commands) else line

    def _statements_of(self, program: Program) -> Statements:
        """Kept for the next finding of the same program."""
        if self._statements is None or self._statements[0] is not program:
            self._statements = program, Statements(program.tree)
        return self._statements[1]

    def unknown(self, known: frozenset[str]) -> list[tuple[int, str]]:
        """Names that no fault has: a typo would go unnoticed."""
        return [
            (one.line, name)
            for one in self.directives
            for name in sorted(one.names - known - EVERYTHING)
        ]


def names_of(code: str, slug: str) -> tuple[str, ...]:
    """What a comment may call it: its slug, its code, its family."""
    return slug, code.lower(), code.lower()[:5], code[4]


def _directives(text: str) -> list[IgnoreComment]:
    found = []
    for number, line in enumerate(lines_of(text), start=1):
        for match in _COMMENT.finditer(line):
            names = match["names"]
            listed = [n.strip().lower() for n in (names or "").split(",") if n.strip()]
            found.append(
                IgnoreComment(
                    line=number,
                    whole_file=match["what"] == "ignore-file",
                    alone=not line[: match.start()].strip(),
                    names=EVERYTHING if names is None else frozenset(listed),
                )
            )
    return found


def _command_lines(lines: list[str]) -> list[int]:
    """For each line the first one of its command: a backslash at the end continues it."""
    first: list[int] = []
    continues = False
    for number, line in enumerate(lines, start=1):
        first.append(first[-1] if continues else number)
        continues = line.rstrip().endswith("\\")
    return first


class Statements:
    """Which statement a line belongs to, without a walk through the tree for each question."""

    def __init__(self, tree: ast.Module) -> None:
        spans = sorted(
            (node.lineno, -(node.end_lineno or node.lineno), node.col_offset)
            for node in ast.walk(tree)
            if isinstance(node, ast.stmt)
        )
        self._first = [first for first, _, _ in spans]
        self._last = [-last for _, last, _ in spans]
        self._around: list[int] = []
        """for each statement the index of the one around it; -1 for none"""
        open_ones: list[int] = []
        for index, first in enumerate(self._first):
            while open_ones and self._last[open_ones[-1]] < first:
                open_ones.pop()
            self._around.append(open_ones[-1] if open_ones else -1)
            open_ones.append(index)

    def first_line(self, line: int) -> int:
        """Of the innermost statement around this line; the line itself where there is none."""
        index = bisect.bisect_right(self._first, line) - 1
        while index >= 0 and self._last[index] < line:
            index = self._around[index]
        return self._first[index] if index >= 0 else line
