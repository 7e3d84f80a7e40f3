"""Documents -> their code blocks, and the lines that are left as running text.

Line numbers are those of the file. Columns too: `indent` says how far a block was set in.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.lint import detect_language
from holdfast.lint.lines import lines as lines_of

FENCE = re.compile(
    # a list's bullets and a quotation's marks may stand before it
    r"(?:\s|[-*+](?=\s)|\d{1,9}[.)](?=\s)|>)*(?P<fence>`{3,}|~{3,})(?P<info>.*)$"
)
_DIRECTIVE = re.compile(
    r"(?P<lead>\s*)\.\. (?:code-block|code|sourcecode|highlight)::\s*(?P<info>\S*)\s*$"
)
_LANGUAGE = re.compile(r"[{.\s]*(?P<word>[A-Za-z][\w+-]*)")
_MYST = re.compile(r"\{(?:code-block|code|code-cell|sourcecode)\}\s*(?P<word>\S*)")


class Block(NamedTuple):
    language: str
    """as the document names it, in small letters; '' where it does not"""
    text: str
    first_line: int
    indent: int
    """columns that stand before its text"""


class Line(NamedTuple):
    number: int
    text: str


def markdown(text: str) -> tuple[list[Block], list[Line]]:
    """Fences, also in lists and quotations; an unclosed one goes to the end."""
    blocks: list[Block] = []
    prose: list[Line] = []
    lines = lines_of(text)
    at = 0
    while at < len(lines):
        opened = FENCE.match(lines[at])
        if not opened or (opened["fence"][0] == "`" and "`" in opened["info"]):
            prose.append(Line(at + 1, lines[at]))
            at += 1
            continue
        end = _closing(lines, at + 1, opened["fence"])
        blocks.append(_block(lines[at + 1 : end], at + 2, language_of(opened["info"])))
        at = end + 1
    return blocks, _without_indented(prose, blocks)


def _closing(lines: list[str], start: int, fence: str) -> int:
    """The index of the line that closes it, or the end of the document."""
    ending = re.compile(rf"[\s>]*{re.escape(fence[0])}{{{len(fence)},}}\s*$")
    return next((n for n in range(start, len(lines)) if ending.match(lines[n])), len(lines))


def language_of(info: str) -> str:
    """Of `bash`, `python title="x"`, `{.python .numberLines}`, `{code-block} python`."""
    found = _MYST.match(info.strip()) or _LANGUAGE.match(info.strip())
    return found["word"].lower() if found else ""


def _block(lines: list[str], first_line: int, language: str) -> Block:
    """Quotation marks and the common indentation taken off, their width remembered."""
    quoted = [re.match(r"\s*>\s?", line) for line in lines if line.strip()]
    if quoted and all(quoted):
        width = min(len(mark[0]) for mark in quoted if mark)
    else:
        filled = [line for line in lines if line.strip()]
        width = min((len(line) - len(line.lstrip()) for line in filled), default=0)
    text = "\n".join(line[width:] for line in lines)
    return Block(language, text + "\n" if text else "", first_line, width)


def _without_indented(prose: list[Line], blocks: list[Block]) -> list[Line]:
    """Four spaces after a blank line make a block in Markdown, unless a list goes on there. It is
    taken for one only where it plainly is code: else the words in it would be lost."""
    rest: list[Line] = []
    taken: list[Line] = []
    in_list = False
    for line in [*prose, Line(0, "end")]:
        blank = not line.text.strip()
        indented = line.text.startswith(("    ", "\t"))
        above = (taken or rest or [line])[-1]
        if not indented and not blank:
            in_list = bool(re.match(r"\s*(?:[-*+]|\d+[.)])\s", line.text))
        elif line.number > above.number + 1:
            in_list = False  # a fence stood between
        follows = bool(taken) and line.number == above.number + 1
        starts = indented and not blank and not in_list and _is_after_blank(rest, line)
        if starts or (follows and (indented or blank)):
            taken.append(line)
            continue
        rest += _taken_as_block(taken, blocks)
        taken = []
        rest.append(line)
    return rest[:-1]


def _taken_as_block(lines: list[Line], blocks: list[Block]) -> list[Line]:
    """What is left of these lines as running text."""
    if not lines:
        return []
    block = _block([line.text for line in lines], lines[0].number, "")
    if detect_language.of_snippet(block.text) is None:
        return lines
    blocks.append(block)
    return []


def _is_after_blank(before: list[Line], line: Line) -> bool:
    return not before or not before[-1].text.strip() or before[-1].number != line.number - 1


def rst(text: str) -> tuple[list[Block], list[Line]]:
    """`.. code-block:: bash` and literal blocks after `::`."""
    blocks: list[Block] = []
    prose: list[Line] = []
    lines = lines_of(text)
    at = 0
    while at < len(lines):
        directive = _DIRECTIVE.match(lines[at])
        literal = lines[at].rstrip().endswith("::") and not lines[at].lstrip().startswith("..")
        prose.append(Line(at + 1, lines[at]))
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
    return blocks, prose


def _indentation(line: str) -> int:
    return len(line) - len(line.lstrip())


def _without_options(lines: list[str]) -> Iterator[str]:
    """`:linenos:` and its like stand between the directive and the code: blank lines instead."""
    in_head = True
    for line in lines:
        in_head = in_head and (not line.strip() or bool(re.match(r"\s+:[\w-]+:", line)))
        yield "" if in_head else line
