"""Small questions about sightings: which ranks wrote them, and what they say. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from holdfast import text
from holdfast.analysis.logs.wreckage import LoggedException, Sighting, Wreckage


def writers(seen: Iterable[Sighting]) -> tuple[int, ...]:
    """Their writers, in the order in which they first wrote."""
    return tuple(dict.fromkeys(one.rank for one in seen if one.rank is not None))


def who(seen: Sequence[Sighting], otherwise: str = "a rank") -> str:
    """'rank 2', 'ranks 0-3', or the host where no rank is known: the subject of a sentence."""
    if found := writers(seen):
        return text.ranks(found)
    hosts = dict.fromkeys(one.line.host for one in seen if one.line.host)
    return f"a process on {', '.join(hosts)}" if hosts else otherwise


def field(seen: Iterable[Sighting], name: str) -> str:
    """The first value of a named group; '' when none of them has it."""
    return next((one.fields[name] for one in seen if one.fields.get(name)), "")


def saying(seen: Iterable[Sighting], pattern: str) -> tuple[Sighting, ...]:
    """Those whose line matches this as well."""
    regex = re.compile(pattern)
    return tuple(one for one in seen if regex.search(one.line.text))


def of_first_rank(seen: Sequence[Sighting]) -> tuple[Sighting, ...]:
    """The lines of the rank that wrote the first of them."""
    first = seen[0].line if seen else None
    return tuple(one for one in seen if first and one.line.rank == first.rank)


def raised_at(wreckage: Wreckage, sighting: Sighting) -> LoggedException | None:
    """The exception that this line names, or whose text it has."""
    line = sighting.line
    for one in wreckage.raised:
        if (one.line.source, one.line.number) == (line.source, line.number):
            return one
    return next(
        (
            one
            for one in wreckage.raised
            if one.rank == line.rank and one.line.source == line.source and one.text in line.text
            if one.text
        ),
        None,
    )
