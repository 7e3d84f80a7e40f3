"""Words of the grammar -> text, with the variables of the script filled in.

What only a running shell knows (`$1`, `$(hostname)`, a variable not set here) stays as it was
written and makes its word unknown. Commands inside `$(…)` go to the walker of statements.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from holdfast.analysis.source.source import ShellWord
from holdfast.findings import Place
from holdfast.lint.readers.shell import grammar
from holdfast.lint.readers.shell.nested_text import NestedText
from holdfast.lint.readers.shell.parameter_expansion import ParameterExpander
from holdfast.lint.readers.shell.scope import Part, ShellScope, WordPiece

if TYPE_CHECKING:
    from tree_sitter import Node

DEPTH = 60
"""of words inside words; real scripts do not nest deeper"""

ESCAPED = re.compile(r"\\(\n|.)", re.DOTALL)
SHIFT = re.compile(rb'\\([$`"\\]|\n)|\n')
"""inside double quotes: what is written in more bytes than it means, and ends of lines"""
BLANKS = re.compile(rb"\s*")
ANSI = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}
BRACES = re.compile(r"\{[^{}]*\}")


class WordExpander:
    def __init__(self, passage: NestedText, found: Callable[[Node, ShellScope, int], None]) -> None:
        self.passage = passage
        self.data = grammar.masked(passage.data)
        self.scope = ShellScope()
        self.parameters = ParameterExpander(self)
        self._found = found
        """called with each command substitution, once"""

    # --- whole words --------------------------------------------------------------------------

    def words(self, node: Node, depth: int = 0) -> list[ShellWord]:
        """Usually one; none or several of an unquoted `$ARGS` or of "${ARGS[@]}"."""
        return self.as_words(node, self.fields(node, depth))

    def as_words(self, node: Node, fields: list[list[WordPiece]]) -> list[ShellWord]:
        place = self.passage.place(node.start_byte)
        if len(fields) == 1:
            return [word_of(fields[0], place)]
        ground = self.passage.ground
        return [word_of(field, ground.place(field[0].at)) for field in fields]

    def found(self, substitution: Node, depth: int = 0) -> None:
        self._found(substitution, self.scope, depth)

    def fields(self, node: Node, depth: int = 0) -> list[list[WordPiece]]:
        """The words that one word of the text becomes."""
        fields: list[list[WordPiece]] = []
        growing: list[WordPiece] | None = None
        for part in self.parts(node, quoted=False, depth=depth):
            # the blanks of `$(hostname -s)` are those of its text, not of what it will give
            split = part is not None and part.splits and part.known
            for piece in _split(part) if part is not None and split else [part]:
                if piece is None:
                    growing = None
                elif growing is None:
                    fields.append(growing := [piece])
                else:
                    growing.append(piece)
        return fields

    def value(self, node: Node, depth: int = 0) -> tuple[WordPiece, ...]:
        """Of an assignment: nothing is split there, and blanks join "${ARGS[@]}"."""
        blank = WordPiece(" ", known=True, at=self.passage.origin(node.start_byte), exact=False)
        parts = self.parts(node, quoted=True, depth=depth)
        return tuple((part or blank)._replace(splits=False) for part in parts)

    # --- parts of words -----------------------------------------------------------------------

    def raw(self, node: Node) -> str:
        return self.data[self.start(node) : node.end_byte].decode("utf-8", "replace")

    def start(self, node: Node) -> int:
        """Inside a string, the grammar counts the blanks before an expansion among it."""
        if node.type not in ("simple_expansion", "expansion"):
            return node.start_byte
        blanks = BLANKS.match(self.data, node.start_byte, node.end_byte)
        return blanks.end() if blanks else node.start_byte

    def literal(self, node: Node, text: str | None = None) -> WordPiece:
        written = self.raw(node)
        text = written if text is None else text
        at = self.passage.origin(self.start(node))
        return WordPiece(text, known=not grammar.elided(text), at=at, exact=text == written)

    def unknown(self, node: Node) -> WordPiece:
        return WordPiece(self.raw(node), known=False, at=self.passage.origin(self.start(node)))

    def parts(self, node: Node, *, quoted: bool, depth: int) -> list[Part]:
        kind = node.type
        if depth > DEPTH or kind in ("brace_expression", "$"):
            return [self.unknown(node)]
        if kind in ("concatenation", "command_name"):
            return self._concatenation(node, quoted=quoted, depth=depth)
        if kind in ("simple_expansion", "expansion"):
            return self.parameters.expand(node, quoted=quoted, depth=depth)
        if kind in ("command_substitution", "process_substitution"):
            self.found(node, depth)
            return [self.unknown(node)]
        return self._text(node, depth)

    def _text(self, node: Node, depth: int) -> list[Part]:
        kind = node.type
        if kind == "string":
            return self._string(node, depth)
        if kind == "raw_string":
            return self._raw_string(node)
        if kind == "translated_string":
            inside = node.named_children
            return [part for c in inside for part in self.parts(c, quoted=True, depth=depth + 1)]
        if kind == "arithmetic_expansion":
            return [self.parameters.arithmetic(node)]
        if kind == "ansi_c_string":
            text = ESCAPED.sub(lambda match: ANSI.get(match[1], match[0]), self.raw(node)[2:-1])
            return [self.literal(node, text)]
        return [self.literal(node, ESCAPED.sub(_unescaped, self.raw(node)))]

    def _concatenation(self, node: Node, *, quoted: bool, depth: int) -> list[Part]:
        parts: list[Part] = []
        for child in node.children:
            parts.extend(self.parts(child, quoted=quoted, depth=depth + 1))
        unquoted = "".join(self.raw(c) for c in node.children if c.type in ("word", "{", "}"))
        if BRACES.search(unquoted):  # {a,b}, and {iface} as a placeholder
            return [part and part._replace(known=False) for part in parts]
        return parts

    def _string(self, node: Node, depth: int) -> list[Part]:
        """Every line of it is a separate part, so that its place is exact."""
        parts: list[Part] = []
        start, end = node.start_byte + 1, node.end_byte
        if self.data[end - 1 : end] == b'"' and end > start:
            end -= 1
        at = start
        for child in node.children:
            if child.type in ("simple_expansion", "expansion", "arithmetic_expansion") or (
                child.type == "command_substitution"
            ):
                parts.extend(self._quoted_text(at, self.start(child)))
                parts.extend(self.parts(child, quoted=True, depth=depth + 1))
                at = child.end_byte
        parts.extend(self._quoted_text(at, end))
        return parts or [self.literal(node, "")]

    def _quoted_text(self, start: int, end: int) -> list[Part]:
        """Literal text inside double quotes, cut where an escape or a new line shifts it."""
        parts: list[Part] = []
        at = start
        for match in SHIFT.finditer(self.data, start, end):
            parts.extend(self._exact(at, match.start()))
            if match[1] is None:
                parts.extend(self._exact(match.start(), match.end()))
            elif match[1] != b"\n":
                origin = self.passage.origin(match.start())
                parts.append(WordPiece(match[1].decode(), known=True, at=origin, exact=False))
            at = match.end()
        parts.extend(self._exact(at, end))
        return parts

    def _exact(self, start: int, end: int) -> Iterator[WordPiece]:
        for begin, stop in self.passage.runs(start, end):
            text = self.data[begin:stop].decode("utf-8", "replace")
            if text:
                at = self.passage.origin(begin)
                yield WordPiece(text, known=not grammar.elided(text), at=at)

    def _raw_string(self, node: Node) -> list[Part]:
        parts: list[Part] = []
        at, end = node.start_byte + 1, max(node.end_byte - 1, node.start_byte + 1)
        while at < end:
            line = self.data.find(b"\n", at, end) + 1 or end
            parts.extend(self._exact(at, line))
            at = line
        return parts or [self.literal(node, "")]


def word_of(atoms: list[WordPiece], place: Place) -> ShellWord:
    text = "".join(atom.text for atom in atoms)
    known = all(atom.known for atom in atoms) and not grammar.elided(text)
    return ShellWord(text=grammar.unmasked(text), place=place, known=known)


def _unescaped(match: re.Match[str]) -> str:
    return "" if match[1] == "\n" else match[1]


def _split(atom: WordPiece) -> list[Part]:
    """At its blanks; None where a word ends. The first one continues the word before it."""
    pieces: list[Part] = []
    for match in re.finditer(r"\s+|\S+", atom.text):
        if match[0].isspace():
            pieces.append(None)
        else:
            before = atom.text[: match.start()].encode("utf-8", "replace")
            at = atom.at + (len(before) if atom.exact else 0)
            pieces.append(atom._replace(text=match[0], at=at, splits=False))
    return pieces
