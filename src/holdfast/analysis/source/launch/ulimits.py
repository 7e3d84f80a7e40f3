"""Limits that a launch script sets: `ulimit -n 65536`, `docker run --ulimit nofile=1024:4096`."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from holdfast.analysis.source.source import Command, ContainerRun, Flag, Source, SourceKind
from holdfast.findings import Place

OPTION = {"nofile": "n", "memlock": "l"}


class UlimitCommand(NamedTuple):
    """`ulimit` in a script, for one limit."""

    command: Command
    value: str
    """'' where it only asks; 'unlimited' or a number, as written"""
    place: Place


def ulimit_commands(source: Source, limit: str) -> Iterator[UlimitCommand]:
    """Every `ulimit -n …` (or -Sn, -Hn, -n in a bundle) that sets this limit."""
    letter = OPTION[limit]
    for command in source.commands:
        if command.name != "ulimit":
            continue
        words = command.words[1:]
        for at, word in enumerate(words):
            if re.fullmatch(rf"-[SH]*{letter}[SH]*", word.text):
                given = next((w for w in words[at + 1 :] if not w.text.startswith("-")), None)
                if given is not None and given.known:
                    yield UlimitCommand(command, given.text, given.place)


def container_ulimit(container: ContainerRun, limit: str) -> tuple[Flag, int, int] | None:
    """Soft and hard of `--ulimit nofile=SOFT:HARD`; -1 is no limit; None where it is not said."""
    for option in reversed(container.every("ulimit")):
        name, _, value = option.value.partition("=")
        match = re.fullmatch(r"(-?\d+)(?::(-?\d+))?", value.strip())
        if name.strip() == limit and match and option.known:
            return option, int(match[1]), int(match[2] or match[1])
    return None


def soft_above_hard(soft: int, hard: int) -> bool:
    """Docker refuses that: 'ulimit soft limit must be less than or equal to hard limit'."""
    return hard != -1 and (soft == -1 or soft > hard)


def only_while_building(source: Source, command: Command) -> bool:
    """`RUN ulimit …` alone on its line of a Dockerfile: gone when that step is done."""
    if source.kind is not SourceKind.DOCKERFILE:
        return False
    alone = not any(
        other.number != command.number and other.place.line == command.place.line
        for other in source.commands
    )
    following = next((c for c in source.commands if c.number == command.number + 1), None)
    same_step = following is not None and following.place.column > command.place.column
    return alone and not same_step and command.place.column == len("RUN ") + 1
