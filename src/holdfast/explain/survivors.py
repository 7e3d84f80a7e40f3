"""Which exceptions did not end their program, now that everything was read. Pure.

Steps after an exception show that it was caught, unless its rank then exited with an error and
raised or reported nothing else: a program that writes to a pipe without `python -u` writes its
last lines when it ends, below the traceback.
"""

from __future__ import annotations

import bisect
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Exit, LoggedException, LogLine, Sighting
from holdfast.analysis.scene.secondary_errors import SURVIVED
from holdfast.explain.read.collected import Survived


def settled(
    survived: Iterable[Survived],
    raised: Sequence[LoggedException],
    exits: Iterable[Exit],
    sightings: Iterable[Sighting],
) -> list[Survived]:
    """Without those that ended their rank after all; `raised` in the order of their indexes."""
    failed: dict[int | None, list[Exit]] = {}
    for end in exits:
        if end.code > 0 and not end.teardown and end.rank is not None:
            failed.setdefault(end.rank, []).append(end)
    last = {one.rank: one.order for one in raised}
    for seen in sightings:
        if seen.role is Role.CASCADE and seen.order > last.get(seen.rank, 0):
            last[seen.rank] = seen.order
    return [
        one
        for one in survived
        if one.ignored
        or last[raised[one.position].rank] > raised[one.position].order
        or not any(_is_below(end, one) for end in failed.get(raised[one.position].rank, ()))
    ]


def _is_below(end: Exit, one: Survived) -> bool:
    """Reported after those steps: steps below the report are of a rank that was started again."""
    return end.line.source != one.first.source or end.line.number > one.until


def marked(
    raised: Sequence[LoggedException], survived: Iterable[Survived]
) -> list[LoggedException]:
    found = {one.position: one for one in survived}
    return [
        msgspec.structs.replace(one, consequence=SURVIVED, steps_after=found[index].steps)
        if index in found
        else one
        for index, one in enumerate(raised)
    ]


def outside(sightings: Iterable[Sighting], survived: Iterable[Survived]) -> list[Sighting]:
    """Those that are no part of a survived exception."""
    lasts = {(_writer(one.first), one.first.number): one.last for one in survived}
    begins: dict[tuple[object, ...], list[int]] = {}
    for writer, number in sorted(lasts, key=lambda key: key[1]):
        begins.setdefault(writer, []).append(number)

    def is_inside(line: LogLine) -> bool:
        known = begins.get(_writer(line), [])
        place = bisect.bisect_right(known, line.number) - 1
        return place >= 0 and line.number <= lasts[_writer(line), known[place]]

    return [one for one in sightings if not is_inside(one.line)]


def _writer(line: LogLine) -> tuple[object, ...]:
    return line.source, line.rank, line.local_rank, line.host, line.pid
