"""Python in documents -> Source: examples that Python refuses are mended where it is plain how.

No line is added or removed, so that every place stays that of the file.
"""

from __future__ import annotations

import ast
import re

import msgspec

from holdfast.analysis.source.program import Program
from holdfast.analysis.source.source import Kind, Refusal, Source
from holdfast.findings import Place
from holdfast.lint.readers import python

ATTEMPTS = 5
MOST_IMPORTS = 300
"""that later examples are read with; every one of them is read with all of these"""
_PROMPT = re.compile(r"(?:>>>|\.\.\.)(?: |$)")
_MAGIC = re.compile(r"(?P<indent>\s*)(?:%%?|!)[\w/.]")
_OMISSION = re.compile(r"(?:,\s*)?(?:\.{3}|…)(?=\s*[,)\]}])|(?<=[(\[{,])\s*(?:\.{3}|…)\s*,?")
_HEREDOC = re.compile(r"^\s*(?:cat|tee|python3?)\b.*<<", re.MULTILINE)
_PROGRAM = re.compile(
    r"^\s*(?:import |from [\w.]+ import |(?:async )?def \w|class \w|@|if __name__)", re.MULTILINE
)


def read(text: str, file: str, *, first_line: int = 1, indent: int = 0) -> Source:
    """An example of a document. Never raises."""
    text, shift = without_prompts(text)
    indent += shift
    text = "\n".join(_without_magic(line) for line in text.split("\n"))
    refused: Refusal | None = None
    if _HEREDOC.search(text):  # a shell's, under the wrong name
        return Source(file=file, kind=Kind.PYTHON, complete=False)
    for _ in range(ATTEMPTS):
        made = _attempt(text, file, first_line, indent)
        if isinstance(made, Source):
            if refused and _PROGRAM.search(text) and python.concerns_us(text):
                refused = msgspec.structs.replace(refused, mended=True)
            return msgspec.structs.replace(made, refused=refused)
        at = (made.lineno or first_line) - first_line
        mended = _without_omission(text, at)
        if mended is None:
            refused = refused or _refusal(made, file, first_line, indent, text)
            mended = _mend(text, at, made)
        if mended is None:
            break
        text = mended
    return Source(file=file, kind=Kind.PYTHON, complete=False, refused=refused)


def _attempt(text: str, file: str, first_line: int, indent: int) -> Source | SyntaxError:
    try:
        return python.read(text, file, first_line=first_line, indent=indent, complete=False)
    except SyntaxError as problem:
        return problem
    except (ValueError, RecursionError, MemoryError) as problem:
        return SyntaxError(str(problem) or "it is nested too deeply to be parsed")


def _refusal(problem: SyntaxError, file: str, first_line: int, indent: int, text: str) -> Refusal:
    line, column = problem.lineno or first_line, max(problem.offset or 1, 1)
    lines = text.split("\n")
    if (header := _header(problem, lines)) is not None:
        # Python points at what follows; what lacks a body, and has to be put right, is this.
        line, column = first_line + header, _indentation(lines[header]) + 1
    place = Place(file=file, line=min(line, first_line + len(lines)), column=column + indent)
    words = python.refusal_words(problem, first_line=first_line)
    return Refusal(error=words, place=place, mended=False)


def _header(problem: SyntaxError, lines: list[str]) -> int | None:
    """The index of the line that opens a block without a body."""
    found = re.search(r"expected an indented block .*on line (\d+)", problem.msg or "")
    header = int(found[1]) - 1 if found else -1
    return header if 0 <= header < len(lines) else None


def without_prompts(text: str) -> tuple[str, int]:
    """`>>> f()` and the output below it -> code; the columns that the prompts took."""
    lines = text.split("\n")
    filled = [line for line in lines if line.strip()]
    if not filled or not _PROMPT.match(filled[0]) or not filled[0].startswith(">>>"):
        return text, 0
    return "\n".join(line[4:] if _PROMPT.match(line) else "" for line in lines), 4


def _without_magic(line: str) -> str:
    found = _MAGIC.match(line)
    return f"{found['indent']}pass" if found else line


def _without_omission(text: str, at: int) -> str | None:
    """`f(a=1, ...)` and `def f(…):` leave something out on purpose; that is no slip."""
    lines = text.split("\n")
    if not 0 <= at < len(lines):
        return None
    return _with(lines, at, _OMISSION.sub(lambda found: " " * len(found[0]), lines[at]))


def _mend(text: str, at: int, problem: SyntaxError) -> str | None:
    """The text with one thing put right, or None where nobody could know what was meant."""
    lines = text.split("\n")
    if "expected an indented block" in (problem.msg or ""):
        return _with_a_body(lines, problem)
    if "unexpected indent" in (problem.msg or "") and 0 <= at < len(lines):
        # an excerpt from the middle of something: everything above it stands further out
        inner = lines[at]
        return _with(lines, at, f"{_outer(lines, at)}{inner.lstrip()}")
    if 0 <= at < len(lines) and lines[at].strip():
        return _with(lines, at, _blanked(lines[at]))
    return _without_last(lines)


def _with(lines: list[str], at: int, line: str) -> str | None:
    if lines[at] == line:
        return None
    return "\n".join([*lines[:at], line, *lines[at + 1 :]])


def _outer(lines: list[str], at: int) -> str:
    above = next((line for line in reversed(lines[:at]) if _is_code(line)), "")
    return above[: len(above) - len(above.lstrip())]


def _is_code(line: str) -> bool:
    return bool(line.strip()) and not line.lstrip().startswith("#")


def _blanked(line: str) -> str:
    """A line that cannot be read becomes `pass`; one that opens a block keeps a block open."""
    indent = line[: len(line) - len(line.lstrip())]
    return f"{indent}if True:" if line.rstrip().endswith(":") else f"{indent}pass"


def _without_last(lines: list[str]) -> str | None:
    """An example that breaks off: its last statement goes."""
    filled = [n for n, line in enumerate(lines) if line.strip()]
    return _with(lines, filled[-1], "") if filled else None


def _with_a_body(lines: list[str], problem: SyntaxError) -> str | None:
    """A comment where the body should be becomes `pass`; where there is none, on the same line."""
    header = _header(problem, lines)
    if header is None:
        return None
    outer = _indentation(lines[header])
    for at in range(header + 1, len(lines)):
        comment = lines[at].lstrip().startswith("#")
        if comment and _indentation(lines[at]) > outer:
            return _with(lines, at, f"{' ' * _indentation(lines[at])}pass")
        if _is_code(lines[at]):
            break
    return _with(lines, header, _closed(lines[header]))


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _closed(header: str) -> str:
    """`for x in y:  # why` -> `for x in y: pass`, where the colon that ends it is plain to see."""
    for end in range(len(header), 0, -1):
        if header[end - 1] == ":" and header[end:].strip()[:1] in ("", "#"):
            return f"{header[:end]} pass"
    return header


class Imports:
    """A document imports once and goes on with it: later examples without imports of their own
    are read with those of the earlier ones, as in a notebook."""

    def __init__(self) -> None:
        self._held: dict[str, ast.stmt] = {}

    def shared(self, source: Source) -> Source:
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
        told = Program(
            tree, program.text, program.file, first_line=program.first_line, indent=program.indent
        )
        read_again = python.of_program(told, complete=False)
        return msgspec.structs.replace(read_again, refused=source.refused)

    def _hold(self, nodes: list[ast.Import | ast.ImportFrom]) -> None:
        """Each once: a long document repeats its imports in every second example."""
        for node in nodes:
            if len(self._held) < MOST_IMPORTS:
                self._held.setdefault(ast.dump(node), node)
