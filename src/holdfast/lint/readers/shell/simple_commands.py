"""Simple commands: words spelled out, wrappers taken off, environment added."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import TYPE_CHECKING

from holdfast.analysis.source.source import Command, ShellWord, SourceSetting
from holdfast.findings import Place
from holdfast.lint.readers.arguments import program
from holdfast.lint.readers.shell import grammar
from holdfast.lint.readers.shell.assignments import AssignmentReader
from holdfast.lint.readers.shell.child_commands import ChildReader, Nested, prefix
from holdfast.lint.readers.shell.scope import WordPiece
from holdfast.lint.readers.shell.shell_reading import ShellReading
from holdfast.lint.readers.shell.word_expansion import WordExpander, word_of
from holdfast.lint.readers.shell.wrappers import unwrap

if TYPE_CHECKING:
    from tree_sitter import Node

WORDS = ("word", "string", "raw_string", "concatenation", "number", "simple_expansion", "expansion")


@dataclasses.dataclass
class CommandParts:
    """What was gathered of one command."""

    words: list[ShellWord] = dataclasses.field(default_factory=list)
    atoms: list[list[WordPiece]] = dataclasses.field(default_factory=list)
    """what each word is made of"""
    prefixes: list[SourceSetting] = dataclasses.field(default_factory=list)
    documents: list[Node] = dataclasses.field(default_factory=list)
    """here-documents"""
    targets: list[ShellWord] = dataclasses.field(default_factory=list)
    """files its output goes to"""


class CommandReader:
    def __init__(
        self,
        expander: WordExpander,
        assigner: AssignmentReader,
        reading: ShellReading,
        around: tuple[str, ...],
        nested: Nested,
    ) -> None:
        self.expander = expander
        self.assigner = assigner
        self.reading = reading
        self.around = around
        """what runs this text: ('srun', 'bash')"""
        self.starter = ChildReader(expander, reading, nested)
        self.spelled: dict[int, CommandParts] = {}
        """of the commands of the pipeline that is read just now"""

    def simple(
        self,
        node: Node,
        redirections: Sequence[Node] = (),
        *,
        loops: tuple[int, ...],
        background: bool,
    ) -> int | None:
        """The index of its command in the reading."""
        spelled = self._spelled(node, redirections)
        if not spelled.words:
            return None
        return self.run(
            spelled,
            self.expander.passage.place(node.start_byte),
            self.expander.passage.place(node.end_byte),
            loops=loops,
            background=background,
        )

    def run(
        self,
        spelled: CommandParts,
        start: Place,
        end: Place,
        *,
        loops: tuple[int, ...] = (),
        background: bool = False,
    ) -> int:
        bare = unwrap(spelled.words)
        spelled.prefixes.extend(prefix(word) for word in bare.assigned)
        for setting in spelled.prefixes:
            self.reading.setting(setting)
        first = bare.words[0]
        command = Command(
            name=program(first),
            words=bare.words,
            # of the program, unless a variable names it: then of the whole command
            place=first.place if start <= first.place <= end else start,
            settings=(*self.expander.scope.exports(), *spelled.prefixes),
            loops=loops,
            background=background,
            writes_to=tuple(spelled.targets),
            wrappers=(*self.around, *bare.wrappers),
        )
        index = self.reading.command(command)
        atoms = spelled.atoms[len(spelled.words) - len(bare.words) :]
        self.assigner.builtin(command.name, command.words)
        self.starter.within(command, atoms, spelled.documents)
        self.starter.writes(command, atoms, spelled.documents, spelled.targets)
        spelled.atoms = atoms
        self.spelled = {index: spelled}
        return index

    def piped(self, before: int, spelled: CommandParts | None, index: int) -> None:
        """`echo … | sudo tee -a FILE`"""
        first, second = self.reading.commands[before], self.reading.commands[index]
        if second.name == "tee" and spelled is not None:
            files = [word for word in second.words[1:] if not word.text.startswith("-")]
            self.starter.writes(first, spelled.atoms, spelled.documents, files)

    # --- gathering ------------------------------------------------------------------------------

    def _spelled(self, node: Node, redirections: Sequence[Node]) -> CommandParts:
        spelled = CommandParts()
        end = -1
        for child in (*node.children, *redirections):
            if child.type == "variable_assignment":
                given = self.assigner.prefix(child)
                spelled.prefixes.extend([given] if given else [])
            elif child.type.endswith("_redirect"):
                self._redirect(child, spelled)
            elif child.is_named and child.type != "comment" and child not in redirections:
                self._spell(child, spelled, glued=child.start_byte == end)
            end = child.end_byte
        return spelled

    def _spell(self, node: Node, into: CommandParts, *, glued: bool = False) -> None:
        """`glued`: no blank before it. The grammar cuts some words in two: `%j_$DATE.log`."""
        fields = self.expander.fields(node)
        words = self.expander.as_words(node, fields)
        if glued and fields and into.words:
            into.atoms[-1] = [*into.atoms[-1], *fields.pop(0)]
            into.words[-1] = word_of(into.atoms[-1], into.words[-1].place)
            words.pop(0)
        into.atoms.extend(fields)
        into.words.extend(words)

    def _redirect(self, node: Node, spelled: CommandParts) -> None:
        if node.type == "file_redirect":
            operator = next((c.type for c in node.children if not c.is_named), "")
            named = [c for c in node.named_children if c.type != "file_descriptor"]
            for child in named:
                found = self.expander.words(child)
                if operator in (">", ">>", ">|", "&>", "&>>"):
                    spelled.targets.extend(found)
            return
        if node.type == "heredoc_redirect":
            spelled.documents.append(node)
            for child in node.children:  # the grammar attaches the rest of the line to it
                if child.type.endswith("_redirect"):
                    self._redirect(child, spelled)
                elif child.type in WORDS:
                    self._spell(child, spelled)
        self.redirection(node)

    def redirection(self, node: Node) -> None:
        for found in grammar.substitutions(node):
            self.expander.found(found)
