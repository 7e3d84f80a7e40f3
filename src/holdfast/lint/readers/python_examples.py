"""Python in documents and notebooks -> Source: prompts and magics go, no line moves.

Nothing else is repaired. Many examples are excerpts (`f(a=1, ...)`, a body without its `def`): one
that Python refuses is passed over.
"""

from __future__ import annotations

import ast
import re

from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Source
from holdfast.lint.readers import python

MOST_IMPORTS = 300
"""that later examples are read with; every one of them is read with all of these"""
_PROMPT = re.compile(r"(?:>>>|\.\.\.)(?: |$)")
_MAGIC = re.compile(r"(?P<indent>\s*)(?:%%?[\w/.]|!(?!=))")
"""`! pip install x` with a blank is right, too; a line may begin with the operator `!=`"""
_HEREDOC = re.compile(r"^\s*(?:cat|tee|python3?)\b.*<<", re.MULTILINE)


def read_block(text: str, file: str, *, first_line: int = 1, indent: int = 0) -> Source | None:
    """A code block of a document; None where Python refuses it. Never raises."""
    text, prompt_width = without_prompts(text)
    if _HEREDOC.search(text):  # shell, under the wrong name
        return None
    made = python.read_all(
        without_magics(text),
        file,
        first_line=first_line,
        indent=indent + prompt_width,
        complete=False,
    )
    return None if made.refused else made


def read_cells(text: str, file: str, *, indent: int = 0) -> Source:
    """All code cells of a notebook, joined; says so where Python refuses them. Never raises."""
    return python.read_all(without_magics(text), file, indent=indent, complete=False)


def without_prompts(text: str) -> tuple[str, int]:
    """`>>> f()` and the output below it -> code; the columns that the prompts took."""
    lines = text.split("\n")
    filled = [line for line in lines if line.strip()]
    if not filled or not _PROMPT.match(filled[0]) or not filled[0].startswith(">>>"):
        return text, 0
    return "\n".join(line[4:] if _PROMPT.match(line) else "" for line in lines), 4


def without_magics(text: str) -> str:
    """`%matplotlib inline` and `!pip install x` -> `pass`."""
    return "\n".join(_without_magic(line) for line in text.split("\n"))


def _without_magic(line: str) -> str:
    found = _MAGIC.match(line)
    return f"{found['indent']}pass" if found else line


class SharedImports:
    """A document imports once and then uses the names: an example without imports is read with
    those of the earlier ones, as in a notebook."""

    def __init__(self) -> None:
        self._held: dict[str, ast.stmt] = {}

    def added_to(self, source: Source) -> Source:
        program = source.program
        if program is None:
            return source
        own = [node for node in program.tree.body if isinstance(node, ast.Import | ast.ImportFrom)]
        if own:
            self._hold(own)
            return source
        if not self._held:
            return source
        tree = ast.Module(body=[*self._held.values(), *program.tree.body], type_ignores=[])
        with_imports = Program(
            tree, program.text, program.file, first_line=program.first_line, indent=program.indent
        )
        return python.of_program(with_imports, complete=False)

    def _hold(self, nodes: list[ast.Import | ast.ImportFrom]) -> None:
        """Each once: a long document repeats its imports in every second example."""
        for node in nodes:
            if len(self._held) < MOST_IMPORTS:
                self._held.setdefault(ast.dump(node), node)
