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
    failed = {one.rank for one in exits if one.code > 0 and not one.teardown} - {None}
    last = {one.rank: one.order for one in raised}
    for seen in sightings:
        if seen.role is Role.CASCADE and seen.order > last.get(seen.rank, 0):
            last[seen.rank] = seen.order
    return [
        one
        for one in survived
        if one.ignored
        or (rank := raised[one.position].rank) not in failed
        or last[rank] > raised[one.position].order
    ]


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
