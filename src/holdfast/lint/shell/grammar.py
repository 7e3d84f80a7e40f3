"""tree-sitter's bash grammar, and the `<placeholder>` of recipes that no shell would accept."""

from __future__ import annotations

import functools
import re
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

OPEN, CLOSE, BLANK = "\x01", "\x02", "\x03"
"""what stands for <, > and the blanks between while a placeholder is parsed; as long as they are"""

PLACEHOLDER = re.compile(rb"(?<![<\w&])<([A-Za-z_][\w./:-]*(?: [\w./:'-]+){0,5})>(?!\()")
"""`<iface>`, `<master ip>`: but not `<<EOF>`, `<(…)`, `<file >out`"""

LONG, LONGEST = 2_000, 16_000
"""bytes of a line"""
PLAIN = re.compile(rb"[\w ./:,=-]")

ELIDED = re.compile(
    r"\.\.\.|…|[\x01]|^\[[^\]]*\]$|\{[A-Za-z_ ]+\}|(?i:\byour[-_ ]|\bmy[-_](?:iface|interface|ip)\b"
    r"|\bx{2,}\b|\bchange[-_]?me\b)"
)
"""words that stand for what the reader is to fill in"""


@functools.cache
def _parser() -> Parser:
    # late: a run that meets no shell need not load the grammar
    import tree_sitter_bash  # noqa: PLC0415
    from tree_sitter import Language, Parser  # noqa: PLC0415

    return Parser(Language(tree_sitter_bash.language()))


def prepared(data: bytes) -> bytes:
    """As the parser gets it: placeholders masked, and lines that no person wrote left blank.

    The grammar's recovery from errors takes quadratic time over a line; a line that long, or long
    and mostly punctuation, is no recipe.
    """
    if any(len(line) > LONG for line in data.split(b"\n")):
        data = b"\n".join(map(_readable, data.split(b"\n")))
    return masked(data)


def _readable(line: bytes) -> bytes:
    if len(line) <= LONG:
        return line
    plain = len(PLAIN.findall(line))
    return line if len(line) <= LONGEST and plain * 3 > len(line) * 2 else b" " * len(line)


def masked(data: bytes) -> bytes:
    """`<iface>` would be a redirection; the length stays, so that places stay."""

    def stand_in(match: re.Match[bytes]) -> bytes:
        inside = match[1].replace(b" ", BLANK.encode()).replace(b"'", BLANK.encode())
        return OPEN.encode() + inside + CLOSE.encode()

    return PLACEHOLDER.sub(stand_in, data)


def unmasked(text: str) -> str:
    return text.replace(OPEN, "<").replace(CLOSE, ">").replace(BLANK, " ")


def elided(text: str) -> bool:
    """Is this (masked) text a placeholder, or does it hold one?"""
    return ELIDED.search(text) is not None


def parse(data: bytes) -> Node:
    """Never fails: what the grammar does not know becomes ERROR nodes among good ones."""
    return _parser().parse(data).root_node


def substitutions(node: Node) -> list[Node]:
    """The outermost `$(…)` below a node, in order."""
    waiting, found = [node], []
    while waiting:
        one = waiting.pop()
        if one is not node and one.type in ("command_substitution", "process_substitution"):
            found.append(one)
        else:
            waiting.extend(reversed(one.children))
    return found
