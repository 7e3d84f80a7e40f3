"""Shell -> `Source`, by the bash grammar of tree-sitter."""

from __future__ import annotations

import msgspec

from holdfast.analysis.source.source import (
    ContainerRun,
    ShellWord,
    Source,
    SourceKind,
    SyntaxRefusal,
)
from holdfast.findings import Place
from holdfast.lint.readers import launches
from holdfast.lint.readers.shell.nested_text import FileText, NestedText
from holdfast.lint.readers.shell.scope import ShellScope, WordPiece
from holdfast.lint.readers.shell.shell_reading import ShellReading
from holdfast.lint.readers.shell.simple_commands import CommandParts
from holdfast.lint.readers.shell.statements import ShellWalker
from holdfast.lint.readers.shell.word_expansion import word_of


def read(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    """Never raises: text that is not shell is passed over."""
    ground = FileText(text, file, first_line=first_line, indent=indent)
    reading = ShellReading()
    walk(ground.whole(), reading, ShellScope())
    found = source(reading, file, SourceKind.SHELL, complete=complete)
    refused = _refused(reading, Place(file=file, line=1)) if complete else None
    return msgspec.structs.replace(found, refused=refused) if refused else found


def _refused(reading: ShellReading, place: Place) -> SyntaxRefusal | None:
    """Why a part may be missing."""
    if reading.budget.spent:
        return SyntaxRefusal(error="it is too complex to be parsed to the end", place=place)
    if reading.cut:
        return SyntaxRefusal(error="a part is nested too deeply and is not read", place=place)
    if reading.stumbled:
        error = "the shell grammar could not parse all of it"
        return SyntaxRefusal(error=error, place=place, confirmed=False)
    return None


def walk(passage: NestedText, reading: ShellReading, scope: ShellScope) -> None:
    ShellWalker(passage, reading, scope).walk()


def run(
    fields: list[list[WordPiece]], ground: FileText, reading: ShellReading, scope: ShellScope
) -> None:
    """A command whose words are given: `CMD ["torchrun", "train.py"]`."""
    if not fields or not all(fields):
        return
    walker = ShellWalker(NestedText(ground, b""), reading, scope)
    words = [word(field, ground) for field in fields]
    start, end = ground.place(fields[0][0].at), ground.place(fields[-1][-1].at)
    walker.commander.run(CommandParts(words=words, atoms=fields), start, end)


def word(field: list[WordPiece], ground: FileText) -> ShellWord:
    return word_of(field, ground.place(field[0].at))


def source(
    reading: ShellReading,
    file: str,
    kind: SourceKind,
    *,
    complete: bool,
    containers: tuple[ContainerRun, ...] = (),
) -> Source:
    """`containers`: those that are no command, of a compose file."""
    commands = reading.in_order()
    return Source(
        file=file,
        kind=kind,
        settings=reading.settings_in_order(),
        reads=frozenset(reading.reads),
        commands=commands,
        loops=tuple(reading.loops),
        launches=(*reading.jobs, *launches.launches(commands)),
        containers=(*containers, *launches.containers(commands)),
        hosts=tuple(reading.hosts),
        complete=complete,
    )
