"""Settings that launchers and engines hand to what they start: docker -e, mpirun -x, --export."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from holdfast.analysis.source.source import Command, ShellWord, SourceSetting
from holdfast.lint.readers import launch_options as known
from holdfast.lint.readers.arguments import shifted, split
from holdfast.lint.readers.container_engines import ENGINES, container_words

ASSIGNED = re.compile(r"([A-Za-z_]\w*)=(.*)", re.DOTALL)


def environment(command: Command) -> tuple[SourceSetting, ...]:
    """What its own options set for what it starts; `-e NAME` only hands on what is there."""
    return tuple(_environment(command))


def _environment(command: Command) -> Iterator[SourceSetting]:
    words = command.words
    if command.name in ENGINES:
        words = words[: container_words(words)]
    if command.name in ("apptainer", "singularity"):
        yield from _each(words, ("--env",), "docker -e", commas=True)
    elif command.name in ENGINES:
        yield from _each(words, ("-e", "--env"), "docker -e")
    elif command.name in known.MPI_PROGRAMS:
        own = words[: 1 + split(words[1:], known.MPIRUN).rest]
        yield from _each(own, ("-x",), "mpirun -x")
        yield from _pairs(own)
    elif command.name in ("srun", "sbatch", "salloc"):
        own = words[: 1 + split(words[1:], known.SRUN).rest]
        yield from _each(own, ("--export",), "srun --export", commas=True)


def _each(
    words: Sequence[ShellWord], spellings: tuple[str, ...], by: str, *, commas: bool = False
) -> Iterator[SourceSetting]:
    for at, word in enumerate(words):
        long = next((s for s in spellings if word.text.startswith(f"{s}=")), "")
        if long:
            yield from _settings(word, len(long) + 1, by, commas=commas)
        elif word.text in spellings and at + 1 < len(words):
            yield from _settings(words[at + 1], 0, by, commas=commas)


def _settings(word: ShellWord, skip: int, by: str, *, commas: bool) -> Iterator[SourceSetting]:
    text = word.text[skip:]
    column = skip
    for piece in text.split(",") if commas else [text]:
        if match := ASSIGNED.fullmatch(piece):
            yield SourceSetting(
                name=match[1],
                value=match[2],
                place=shifted(word.place, column),
                known=word.known,
                written=match[2],
                by=by,
            )
        column += len(piece) + 1


def _pairs(words: Sequence[ShellWord]) -> Iterator[SourceSetting]:
    """MPICH: -genv NAME VALUE"""
    for at, word in enumerate(words[:-2]):
        if word.text in ("-genv", "-env", "--genv", "--env"):
            name, value = words[at + 1], words[at + 2]
            yield SourceSetting(
                name=name.text,
                value=value.text,
                place=name.place,
                known=name.known and value.known,
                written=value.text,
                by="mpirun -x",
            )


def handed_on(command: Command, *, inherits: bool) -> tuple[SourceSetting, ...]:
    """The environment of what it starts: a container gets only what is named to it."""
    own = environment(command)
    if inherits:
        return (*command.settings, *own)
    names = {word.text for word in command.words} if command.name in ENGINES else set()
    return (*(setting for setting in command.settings if setting.name in names), *own)
