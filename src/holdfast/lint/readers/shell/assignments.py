"""Assignments, `export`, `declare`, `unset`, `read`: what they change and what they set."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.analysis.source.source import ShellWord, SourceSetting
from holdfast.lint.readers.shell import grammar
from holdfast.lint.readers.shell.scope import ShellVariable, WordPiece
from holdfast.lint.readers.shell.shell_reading import ShellReading
from holdfast.lint.readers.shell.word_expansion import WordExpander

if TYPE_CHECKING:
    from tree_sitter import Node

MOST_ELEMENTS = 200
"""of an array; what a longer one holds is not kept"""
NAME = re.compile(r"[A-Za-z_]\w*")
ASSIGNED = re.compile(rb"(?<![\w$-])([A-Za-z_]\w*)\+?=")
SOURCED_BUT_HARMLESS = re.compile(r"activate|conda|profile|bashrc|setvars|modules?\b|lmod|nvm")
"""files that set up a machine, and no variable of a launch script"""


def assigned_names(data: bytes) -> list[tuple[int, str]]:
    """Where something looks like an assignment; too many is harmless, they only raise doubts."""
    return [(m.start(), m[1].decode()) for m in ASSIGNED.finditer(data)]


class AssignmentReader:
    def __init__(self, expander: WordExpander, reading: ShellReading) -> None:
        self.expander = expander
        self.expander.parameters.assign = self.default
        self.reading = reading

    # --- nodes ----------------------------------------------------------------------------------

    def assign(self, node: Node, *, by: str, exported: bool = False) -> None:
        name_node = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        if name_node is None or name_node.type == "subscript":
            if name_node is not None:  # ARRAY[3]=x
                self._forget(self.expander.raw(name_node).partition("[")[0])
            return
        name = self.expander.raw(name_node)
        appended = any(child.type == "+=" for child in node.children)
        elements = self._elements(value)
        array = value is not None and value.type == "array"
        held = self.expander.scope.get(name)
        if appended:
            elements = self._appended(held, elements, array=array)
            array = array or (held is not None and held.array)
        was_exported = held is not None and held.exported
        self._set(
            node,
            name,
            elements,
            array=array,
            by=by,
            exported=exported or was_exported or self._is_promised(name),
            written=self.expander.raw(value) if value is not None else "",
        )

    def _is_promised(self, name: str) -> bool:
        return self.expander.scope.exporting or name in self.expander.scope.promised

    def default(self, node: Node, name: str, atoms: tuple[WordPiece, ...]) -> None:
        """`${NAME:=default}` of what has no value."""
        written = self.expander.raw(node)
        exported = self._is_promised(name)
        self._set(node, name, (atoms,), array=False, by="shell", exported=exported, written=written)

    def _elements(self, value: Node | None) -> tuple[tuple[WordPiece, ...], ...]:
        if value is None:
            return ((),)
        if value.type != "array":
            return (self.expander.value(value),)
        found: list[tuple[WordPiece, ...]] = []
        for child in value.named_children:
            if child.type != "comment" and len(found) < MOST_ELEMENTS:
                found.extend(tuple(field) for field in self.expander.fields(child))
        return tuple(found[:MOST_ELEMENTS])

    def _appended(
        self, held: ShellVariable | None, more: tuple[tuple[WordPiece, ...], ...], *, array: bool
    ) -> tuple[tuple[WordPiece, ...], ...]:
        if held is None or not held.sure:
            at = more[0][0].at if more and more[0] else 0
            unseen = WordPiece("…", known=False, at=at, exact=False)
            return ((unseen,), *more) if array else ((unseen, *(more[0] if more else ())),)
        if array:
            return (*held.elements, *more)[:MOST_ELEMENTS]
        first = held.elements[0] if held.elements else ()
        return ((*first, *(more[0] if more else ()))[:MOST_ELEMENTS], *held.elements[1:])

    def _set(
        self,
        node: Node,
        name: str,
        elements: tuple[tuple[WordPiece, ...], ...],
        *,
        array: bool,
        by: str,
        exported: bool,
        written: str,
    ) -> None:
        joined = [a for number, atoms in enumerate(elements) for a in (*_gap(number), *atoms)]
        text = "".join(atom.text for atom in joined)
        setting = SourceSetting(
            name=name,
            value=grammar.unmasked(text),
            place=self.expander.passage.place(node.start_byte),
            known=all(atom.known for atom in joined) and not grammar.elided(text),
            exported=exported,
            written=grammar.unmasked(written),
            by=by,
            arms=self.reading.arms,
        )
        index = self.reading.setting(setting)
        self.expander.scope.set(
            name,
            ShellVariable(
                elements=elements,
                array=array,
                setting=setting,
                indexes=(index,),
                exported=exported,
            ),
        )

    def prefix(self, node: Node) -> SourceSetting | None:
        """`A=1` before a command: for that command alone."""
        name = node.child_by_field_name("name")
        value = node.child_by_field_name("value")
        if name is None or name.type == "subscript":
            return None
        atoms = self.expander.value(value) if value is not None else ()
        text = "".join(atom.text for atom in atoms)
        return SourceSetting(
            name=self.expander.raw(name),
            value=grammar.unmasked(text),
            place=self.expander.passage.place(node.start_byte),
            known=all(atom.known for atom in atoms) and not grammar.elided(text),
            written=grammar.unmasked(self.expander.raw(value)) if value is not None else "",
            by="prefix",
        )

    def declare(self, node: Node) -> None:
        """export, declare, typeset, local, readonly"""
        verb = node.children[0].type
        words = [self.expander.raw(c) for c in node.children if c.type == "word"]
        options = "".join(word for word in words if word[:1] in "-+")
        if verb == "export" and "f" in options:
            return
        exported = (verb == "export" and "n" not in options) or (
            verb in ("declare", "typeset", "local") and re.search(r"-\w*x", options) is not None
        )
        for child in node.named_children:
            if child.type == "variable_assignment":
                self.assign(child, by="export" if exported else "shell", exported=exported)
                if verb in ("local", "declare", "typeset") and "g" not in options:
                    self.expander.scope.local.add(self.expander.raw(child).partition("=")[0])
            elif child.type == "variable_name" and exported:
                self.export(self.expander.raw(child))
            elif child.type not in ("word", "comment"):
                self.expander.words(child)  # export "$(grep …)": for the commands in it

    def export(self, name: str) -> None:
        held = self.expander.scope.get(name)
        self.expander.scope.promised.add(name)
        if held is not None:
            self.reading.export(held.indexes)
            self.expander.scope.set(name, msgspec.structs.replace(held, exported=True))

    def unset(self, node: Node) -> None:
        for child in node.named_children:
            if child.type in ("variable_name", "word") and NAME.fullmatch(self.expander.raw(child)):
                place = self.expander.passage.place(child.start_byte)
                name = self.expander.raw(child)
                arms = self.reading.arms
                gone = SourceSetting(name=name, value="", place=place, by="unset", arms=arms)
                self.reading.setting(gone)
                self.expander.scope.unset(name)

    def unknown(self, node: Node) -> None:
        """The variable of a `for`."""
        self._forget(self.expander.raw(node))

    def _forget(self, name: str) -> None:
        held = self.expander.scope.get(name)
        atom = WordPiece(f"${name}", known=False, at=0, exact=False)
        unseen = SourceSetting(
            name=name,
            value=f"${name}",
            place=self.expander.passage.place(0),
            known=False,
            exported=held is not None and held.exported,
        )
        self.expander.scope.set(
            name,
            ShellVariable(
                elements=((atom,),),
                sure=False,
                setting=unseen,
                indexes=held.indexes if held else (),
                exported=held is not None and held.exported,
            ),
        )

    # --- builtins that look like commands ---------------------------------------------------------

    def builtin(self, name: str, words: Sequence[ShellWord]) -> None:
        texts = [word.text for word in words[1:]]
        scope = self.expander.scope
        if name == "set":
            if any(re.fullmatch(r"-\w*a\w*", text) for text in texts) or "allexport" in texts:
                scope.exporting = "+o" not in texts
            if any(re.fullmatch(r"\+\w*a\w*", text) for text in texts):
                scope.exporting = False
        elif name in ("source", "."):
            scope.sourced = scope.sourced or not all(map(SOURCED_BUT_HARMLESS.search, texts))
        elif name in ("read", "getopts", "mapfile", "readarray", "let"):
            for text in texts:
                if NAME.fullmatch(text.partition("=")[0]):
                    self._forget(text.partition("=")[0])
        elif name == "printf" and texts[:1] == ["-v"] and len(texts) > 1:
            self._forget(texts[1])
        elif name == "eval":
            scope.sourced = True


def _gap(number: int) -> tuple[WordPiece, ...]:
    return (WordPiece(" ", known=True, at=0, exact=False),) if number else ()
