"""`$NAME`, `${NAME:-default}`, `${ARGS[@]}`, `$(( … ))`: what a script fills in by itself."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

from holdfast.lint.readers.shell import arithmetic, grammar
from holdfast.lint.readers.shell.scope import GIVEN_FROM_OUTSIDE, Part, ShellVariable, WordPiece

if TYPE_CHECKING:
    from tree_sitter import Node

    from holdfast.lint.readers.shell.word_expansion import WordExpander

LONGEST = 4096
"""characters of a value; longer ones are kept as written"""
BUDGET = 200_000
"""characters that variables may add in one text: `A=$A$A` doubles"""

PLAIN = re.compile(r"\$(?:(\w+|[@*#?!$-])|\{(\w+)(?:\[([@*]|\d+)\])?\})")
"""$NAME, ${NAME}, ${NAME[@]}"""


class ParameterExpander:
    def __init__(self, words: WordExpander) -> None:
        self.words = words
        self.budget = BUDGET
        self.assign: Callable[[Node, str, tuple[WordPiece, ...]], None] | None = None
        """called for `${NAME:=default}`"""

    def arithmetic(self, node: Node) -> WordPiece:
        for found in grammar.substitutions(node):
            self.words.found(found)
        number = arithmetic.result(node, self.words.raw, self._number)
        if number is None:
            return self.words.unknown(node)
        return self.words.literal(node, str(number))

    def _number(self, name: str) -> int | None:
        held = self.words.scope.get(name)
        if held is None or not held.known or held.array:
            return None
        return int(held.text) if re.fullmatch(r"-?[0-9]{1,18}", held.text) else None

    def expand(self, node: Node, *, quoted: bool, depth: int) -> list[Part]:
        form = PLAIN.fullmatch(self.words.raw(node))
        if form is None:
            return self._operator(node, quoted=quoted, depth=depth)
        held = self.words.scope.get(form[1] or form[2])
        if held is None or not held.sure:
            return [self.words.unknown(node)]
        if form[3] in ("@", "*"):
            return self._elements(node, held, quoted=quoted, apart=form[3] == "@")
        index = int(form[3] or 0) if len(form[3] or "") < 6 else LONGEST
        if index >= len(held.elements):
            return [] if not held.elements else [self.words.unknown(node)]
        return self._filled(node, held.elements[index], quoted=quoted)

    def _filled(
        self, node: Node, atoms: tuple[WordPiece, ...], *, quoted: bool, several: bool = False
    ) -> list[Part]:
        size = sum(len(atom.text) for atom in atoms) + len(atoms)
        if size > LONGEST or size > self.budget:
            return [self.words.unknown(node)]
        self.budget -= size
        if several or any(map(str.isspace, "".join(atom.text for atom in atoms))):
            return [atom._replace(splits=not quoted) for atom in atoms]
        # one word: it stands where it is used; of several each stands where it was written
        at = self.words.passage.origin(self.words.start(node))
        return [atom._replace(at=at, exact=False, splits=not quoted) for atom in atoms]

    def _elements(
        self, node: Node, held: ShellVariable, *, quoted: bool, apart: bool
    ) -> list[Part]:
        if sum(map(len, held.elements)) > self.budget:
            return [self.words.unknown(node)]
        parts: list[Part] = []
        for number, atoms in enumerate(held.elements):
            if number and (apart or not quoted):
                parts.append(None)
            elif number:
                parts.append(self.words.literal(node, " "))
            several = len(held.elements) > 1
            parts.extend(self._filled(node, atoms, quoted=quoted, several=several))
        return parts

    def _operator(self, node: Node, *, quoted: bool, depth: int) -> list[Part]:
        """`${X:-default}` and its kin; what they compute otherwise is not followed."""
        for found in grammar.substitutions(node):
            self.words.found(found, depth)
        raw = self.words.raw(node)
        if counted := re.fullmatch(r"\$\{#(\w+)(\[[@*]\])?\}", raw):
            held = self.words.scope.get(counted[1])
            if held is not None and held.known:
                size = len(held.elements) if counted[2] else len(held.text)
                return [self.words.literal(node, str(size))]
            return [self.words.unknown(node)]
        form = re.match(r"\$\{(\w+)(:?[-=?+])", raw)
        if form is None:
            return [self.words.unknown(node)]
        return self._default(node, form[1], form[2], quoted=quoted, depth=depth)

    def _default(
        self, node: Node, name: str, operator: str, *, quoted: bool, depth: int
    ) -> list[Part]:
        held = self.words.scope.get(name)
        if held is not None and not held.known:
            return [self.words.unknown(node)]
        empty = held is None or (operator.startswith(":") and not held.text)
        if held is not None and not empty:
            if operator.endswith("+"):
                return self._alternative(node, quoted=quoted, depth=depth)
            return self._filled(node, held.elements[0] if held.elements else (), quoted=quoted)
        asked_of_outside = GIVEN_FROM_OUTSIDE.match(name) or self.words.scope.sourced
        if operator[-1] in "?+" or (asked_of_outside and not self.words.scope.was_unset(name)):
            return [self.words.unknown(node)]
        parts = self._alternative(node, quoted=quoted, depth=depth)
        if operator.endswith("=") and self.assign is not None:
            atoms = (part._replace(splits=False) for part in parts if part is not None)
            self.assign(node, name, tuple(atoms))
        return parts

    def _alternative(self, node: Node, *, quoted: bool, depth: int) -> list[Part]:
        after = [c for c in node.named_children if c.type not in ("variable_name", "subscript")]
        parts: list[Part] = []
        for child in after:
            parts.extend(self.words.parts(child, quoted=quoted, depth=depth + 1))
        return parts
