"""Documents -> their code blocks.

Line numbers are those of the file. Columns too: `indent` says how far a block was set in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.lint import detect_language
from holdfast.lint.lines import lines as lines_of

FENCE = re.compile(
    # a list's bullets and a quotation's marks may come before it
    r"(?:\s|[-*+](?=\s)|\d{1,9}[.)](?=\s)|>)*(?P<fence>`{3,}|~{3,})(?P<info>.*)$"
)
_DIRECTIVE = re.compile(
    r"(?P<lead>\s*)\.\. (?:code-block|code|sourcecode|highlight)::\s*(?P<info>\S*)\s*$"
)
_LANGUAGE = re.compile(r"[{.\s]*(?P<word>[A-Za-z][\w+-]*)")
_MYST = re.compile(r"\{(?:code-block|code|code-cell|sourcecode)\}\s*(?P<word>\S*)")


class CodeBlock(NamedTuple):
    language: str
    """as the document names it, in small letters; '' where it does not"""
    text: str
    first_line: int
    indent: int
    """columns before its text"""


class _TextLine(NamedTuple):
    """A line outside all fences."""

    number: int
    text: str


def markdown(text: str) -> list[CodeBlock]:
    """Fences, also in lists and quotations; an unclosed one goes to the end."""
    blocks: list[CodeBlock] = []
    outside: list[_TextLine] = []
    lines = lines_of(text)
    at = 0
    while at < len(lines):
        opened = FENCE.match(lines[at])
        if not opened or (opened["fence"][0] == "`" and "`" in opened["info"]):
            outside.append(_TextLine(at + 1, lines[at]))
            at += 1
            continue
        end = _closing(lines, at + 1, opened["fence"])
        blocks.append(_block(lines[at + 1 : end], at + 2, language_of(opened["info"])))
        at = end + 1
    return [*blocks, *_indented(outside)]


def _closing(lines: list[str], start: int, fence: str) -> int:
    """The index of the line that closes it, or the end of the document."""
    ending = re.compile(rf"[\s>]*{re.escape(fence[0])}{{{len(fence)},}}\s*$")
    return next((n for n in range(start, len(lines)) if ending.match(lines[n])), len(lines))


def language_of(info: str) -> str:
    """Of `bash`, `python title="x"`, `{.python .numberLines}`, `{code-block} python`."""
    found = _MYST.match(info.strip()) or _LANGUAGE.match(info.strip())
    return found["word"].lower() if found else ""


def _block(lines: list[str], first_line: int, language: str) -> CodeBlock:
    """Quotation marks and the common indentation taken off, their width remembered."""
    quoted = [re.match(r"\s*>\s?", line) for line in lines if line.strip()]
    if quoted and all(quoted):
        width = min(len(mark[0]) for mark in quoted if mark)
    else:
        filled = [line for line in lines if line.strip()]
        width = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    text = "\n".join(line[width:] for line in lines)
    return CodeBlock(language, text + "\n" if text else "", first_line, width)


def _indented(lines: list[_TextLine]) -> Iterator[CodeBlock]:
    """Four spaces after a blank line make a block in Markdown, unless a list continues there. It is
    taken for one only where it plainly is code."""
    held: list[_TextLine] = []
    above: _TextLine | None = None
    in_list = False
    for line in lines:
        blank = not line.text.strip()
        indented = line.text.startswith(("    ", "\t"))
        adjoins = above is not None and line.number == above.number + 1
        if not indented and not blank:
            in_list = bool(re.match(r"\s*(?:[-*+]|\d+[.)])\s", line.text))
        elif not adjoins:
            in_list = False  # there was a fence between
        after_blank = above is None or not adjoins or not above.text.strip()
        if held and not (adjoins and (indented or blank)):
            yield from _code_among(held)
            held = []
        if held or (indented and not blank and not in_list and after_blank):
            held.append(line)
        above = line
    yield from _code_among(held)


def _code_among(lines: list[_TextLine]) -> Iterator[CodeBlock]:
    if lines:
        block = _block([line.text for line in lines], lines[0].number, "")
        if detect_language.of_snippet(block.text) is not None:
            yield block


def rst(text: str) -> list[CodeBlock]:
    """`.. code-block:: bash` and literal blocks after `::`."""
    blocks: list[CodeBlock] = []
    lines = lines_of(text)
    at = 0
    while at < len(lines):
        directive = _DIRECTIVE.match(lines[at])
        literal = lines[at].rstrip().endswith("::") and not lines[at].lstrip().startswith("..")
        at += 1
        if not directive and not literal:
            continue
        outer = len(lines[at - 1]) - len(lines[at - 1].lstrip())
        start = at
        while at < len(lines) and (not lines[at].strip() or _indentation(lines[at]) > outer):
            at += 1
        body = list(_without_options(lines[start:at]))
        language = directive["info"].lower() if directive else ""
        blocks.append(_block(body, start + 1, language))
    return blocks


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_options(lines: list[str]) -> Iterator[str]:
    """`:linenos:` and its like come between the directive and the code: blank lines instead."""
    in_head = True
    for line in lines:
        in_head = in_head and (not line.strip() or bool(re.match(r"\s+:[\w-]+:", line)))
        yield "" if in_head else line
