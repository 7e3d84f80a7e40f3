"""What a command starts, feeds or writes: an inner command, a text for a shell, a file."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import msgspec

from holdfast.analysis.source.source import Command, ShellWord, SourceSetting
from holdfast.lint.readers import passed_settings
from holdfast.lint.readers.arguments import program
from holdfast.lint.readers.shell import grammar, inner_commands
from holdfast.lint.readers.shell.nested_text import NestedText
from holdfast.lint.readers.shell.scope import ShellScope, WordPiece, environment
from holdfast.lint.readers.shell.shell_reading import EXPANDED, ShellReading
from holdfast.lint.readers.shell.word_expansion import WordExpander
from holdfast.lint.readers.shell.wrappers import unwrap

if TYPE_CHECKING:
    from tree_sitter import Node

Nested = Callable[[NestedText, ShellScope, tuple[str, ...]], None]

SCRIPT = re.compile(r"\.(?:sh|bash|sbatch|slurm|job)$|rc$|profile$|/profile\.d/")
NCCL_CONF = re.compile(r"(?:^|/)\.?nccl\.conf$")
ENV_FILE = re.compile(r"(?:^|/)(?:\.deepspeed_env|environment|[^/]*\.env)$")
SYSCTL_CONF = re.compile(r"(?:^|/)sysctl\.conf$|/sysctl\.d/")
HOSTFILE = re.compile(r"(?:^|/)(?:my)?(?:host|machine)_?files?\b[^/]*$")


class ChildReader:
    def __init__(self, expander: WordExpander, reading: ShellReading, nested: Nested) -> None:
        self.expander = expander
        self.reading = reading
        self.nested = nested

    # --- commands and shells --------------------------------------------------------------------

    def within(self, command: Command, atoms: list[list[WordPiece]], fed: Sequence[Node]) -> None:
        """`srun torchrun …` starts torchrun; `ssh host '…'` a shell; `docker run` a container."""
        for _ in range(inner_commands.DEEPEST):
            for setting in passed_settings.environment(command):
                self.reading.setting(setting)
            started = inner_commands.inner_command(command)
            if started is None:
                return
            around = (*command.wrappers, command.name)
            if started.text:
                self._text(command, started, around, atoms, fed)
                return
            bare = unwrap(command.words[started.at :])
            atoms = atoms[len(command.words) - len(bare.words) :]
            prefixes = tuple(prefix(word) for word in bare.assigned)
            for setting in prefixes:
                self.reading.setting(setting)
            handed_on = passed_settings.handed_on(command, inherits=started.inherits)
            command = msgspec.structs.replace(
                command,
                name=program(bare.words[0]),
                words=bare.words,
                place=max(bare.words[0].place, command.place),  # a variable is set further up
                wrappers=(*around, *bare.wrappers),
                settings=(*handed_on, *prefixes),
            )
            self.reading.command(command)

    def _text(
        self,
        command: Command,
        started: inner_commands.InnerCommand,
        around: tuple[str, ...],
        atoms: list[list[WordPiece]],
        fed: Sequence[Node],
    ) -> None:
        if started.here:
            scope = self.expander.scope
        else:
            handed_on = passed_settings.handed_on(command, inherits=started.inherits)
            scope = environment(handed_on, self.expander.scope, self.expander.passage.origin(0))
        if started.at < len(atoms):
            last = started.at + 1 if started.one_word else len(atoms)
            passage = self._joined(atoms[started.at : last])
            self.nested(passage.part(started.skip, len(passage.data)), scope, around)
            return
        for heredoc in fed:
            if (document := self._document(heredoc)) is not None:
                self.nested(document, self._filled_in(heredoc, document, scope), around)

    def _filled_in(self, heredoc: Node, passage: NestedText, scope: ShellScope) -> ShellScope:
        """Without quotes around its mark, this shell fills the variables of a document in."""
        filled = scope.layer()
        for name in set(EXPANDED.findall(passage.data.decode("utf-8", "replace"))):
            held = self.expander.scope.get(name)
            if held is not None and scope.get(name) is None and not self._is_quoted(heredoc):
                filled.set(name, msgspec.structs.replace(held, exported=False))
        return filled

    def _is_quoted(self, heredoc: Node) -> bool:
        start = next((c for c in heredoc.children if c.type == "heredoc_start"), None)
        return start is not None and self.expander.raw(start)[:1] in ("'", '"', "\\")

    def _joined(self, words: list[list[WordPiece]]) -> NestedText:
        """Words as the text another shell reads, with a blank between them."""
        data = bytearray()
        offsets: list[int] = []
        for number, atoms in enumerate(words):
            if number:
                data += b" "
                offsets.append(atoms[0].at if atoms else (offsets or [0])[-1])
            for atom in atoms:
                piece = grammar.unmasked(atom.text).encode("utf-8", "replace")
                data += piece
                offsets.extend(atom.at + (i if atom.exact else 0) for i in range(len(piece)))
        return NestedText(self.expander.passage.ground, bytes(data), offsets=offsets)

    def _document(self, heredoc: Node) -> NestedText | None:
        body = next((c for c in heredoc.children if c.type == "heredoc_body"), None)
        if body is None:
            return None
        passage = self.expander.passage.part(body.start_byte, body.end_byte)
        if self._is_quoted(heredoc):
            return passage
        escapes = [match.start() for match in re.finditer(rb"\\(?=[$`\\])", passage.data)]
        return passage.without([(at, at + 1) for at in escapes])

    # --- files ----------------------------------------------------------------------------------

    def writes(
        self,
        command: Command,
        atoms: list[list[WordPiece]],
        fed: Sequence[Node],
        targets: Sequence[ShellWord],
    ) -> None:
        """`cat > nccl.conf <<EOF`, `echo … >> ~/.bashrc`, `tee hostfile <<EOF`"""
        if command.name == "tee":
            targets = [*targets, *(w for w in command.words[1:] if not w.text.startswith("-"))]
        paths = [target.text for target in targets if target.text != "/dev/null"]
        if not paths:
            return
        if command.name in ("cat", "tee"):
            for heredoc in fed:
                if (passage := self._document(heredoc)) is not None:
                    self._file(paths[-1], passage, self._filled_in(heredoc, passage, ShellScope()))
        elif command.name in ("echo", "printf"):
            spoken = zip(atoms[1:], command.words[1:], strict=True)
            said = [parts for parts, word in spoken if not word.text.startswith("-")]
            self._file(paths[-1], self._joined(said), ShellScope())

    def _file(self, path: str, passage: NestedText, scope: ShellScope) -> None:
        from holdfast.lint.readers import env_file, hostfile  # noqa: PLC0415 - they use passages too

        if NCCL_CONF.search(path):
            self.reading.settings.extend(env_file.nccl_settings_of(passage))
        elif ENV_FILE.search(path):
            self.reading.settings.extend(env_file.settings_of(passage))
        elif SYSCTL_CONF.search(path):
            self.reading.settings.extend(env_file.sysctl_settings_of(passage))
        elif HOSTFILE.search(path):
            self.reading.hosts.extend(hostfile.hosts_of(passage))
        elif SCRIPT.search(path):
            self.nested(passage, scope, ())


def prefix(word: ShellWord) -> SourceSetting:
    """`env A=1 command`"""
    name, _, value = word.text.partition("=")
    return SourceSetting(
        name=name, value=value, place=word.place, known=word.known, written=value, by="prefix"
    )
