"""tree-sitter's bash grammar, and the `<placeholder>` that no shell would accept."""

from __future__ import annotations

import functools
import re
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

OPEN, CLOSE, BLANK = "\x01", "\x02", "\x03"
"""what stands for <, > and the blanks between while a placeholder is parsed; as long as they are"""

PLACEHOLDER = re.compile(rb"(?<![<\w&])<([A-Za-z_][\w./:-]*(?: [\w./:'-]+){0,5})>(?!\()")
"""`<iface>`, `<master ip>`: but not `<<EOF>`, `<(…)`, `<file >out`"""

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


class ParseBudget:
    """How long all texts of one reading may take to parse.

    The grammar is fast, but recovers from errors in quadratic time. A text that uses up its
    budget ends there for the parser, and what was parsed before is kept.
    """

    def __init__(self, seconds: float = 2.0) -> None:
        self.seconds = seconds
        self.spent = False
        """some text was not parsed to its end"""


def parse(data: bytes, budget: ParseBudget) -> Node:
    """Never raises: what the grammar does not know becomes ERROR nodes among good ones."""
    begun = time.process_time()
    looks_left = 5_000 + len(data) // 8  # a good text takes one look per 256 bytes

    def look(at: int, _point: object) -> bytes:
        nonlocal looks_left
        looks_left -= 1
        if looks_left < 0 or time.process_time() - begun > budget.seconds:
            budget.spent = True
            return b""
        return data[at : at + 512]

    root = _parser().parse(look).root_node
    budget.seconds -= time.process_time() - begun
    return root


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
