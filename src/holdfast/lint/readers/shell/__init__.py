"""Shell -> `Source`, by the bash grammar of tree-sitter."""

from __future__ import annotations

import msgspec

from holdfast.analysis.source.source import Container, Kind, Refusal, Source, Word
from holdfast.findings import Place
from holdfast.lint.readers import launches
from holdfast.lint.readers.shell.commanding import Spelled
from holdfast.lint.readers.shell.expanding import word_of
from holdfast.lint.readers.shell.passage import Ground, Passage
from holdfast.lint.readers.shell.reading import Reading
from holdfast.lint.readers.shell.scope import Atom, Scope
from holdfast.lint.readers.shell.walking import Walker

STUMBLED = "the grammar does not understand all of it"
"""a doubt, until bash itself was asked: see second_opinion.py"""


def read(
    text: str, file: str, *, first_line: int = 1, indent: int = 0, complete: bool = True
) -> Source:
    """Never fails: what is no shell is passed over."""
    ground = Ground(text, file, first_line=first_line, indent=indent)
    reading = Reading()
    walk(ground.whole(), reading, Scope())
    found = source(reading, file, Kind.SHELL, complete=complete)
    if complete and (why := _not_all(reading)):
        doubt = Refusal(error=why, place=Place(file=file, line=1))
        return msgspec.structs.replace(found, refused=doubt)
    return found


def _not_all(reading: Reading) -> str:
    """Why a part may be missing."""
    if reading.patience.ended:
        return "it is too tangled to be parsed to its end"
    return STUMBLED if reading.stumbled else ""


def walk(passage: Passage, reading: Reading, scope: Scope) -> None:
    Walker(passage, reading, scope).walk()


def run(fields: list[list[Atom]], ground: Ground, reading: Reading, scope: Scope) -> None:
    """A command whose words are given: `CMD ["torchrun", "train.py"]`."""
    if not fields or not all(fields):
        return
    walker = Walker(Passage(ground, b""), reading, scope)
    words = [word(field, ground) for field in fields]
    start, end = ground.place(fields[0][0].at), ground.place(fields[-1][-1].at)
    walker.commander.run(Spelled(words=words, atoms=fields), start, end)


def word(field: list[Atom], ground: Ground) -> Word:
    return word_of(field, ground.place(field[0].at))


def source(
    reading: Reading,
    file: str,
    kind: Kind,
    *,
    complete: bool,
    containers: tuple[Container, ...] = (),
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
