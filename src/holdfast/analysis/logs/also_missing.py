"""Ranks that others waited for besides those that an answer names. Pure."""

from __future__ import annotations

from collections.abc import Set

from holdfast.analysis.logs import blame
from holdfast.analysis.logs.blame import Blame
from holdfast.analysis.logs.wreckage import Wreckage


def of_wreckage(wreckage: Wreckage, named: Set[int]) -> tuple[int, ...]:
    """Only where recorders show it, and the answer is about ranks that did not come."""
    known = blame.of(wreckage)
    if known.explained:
        return ()
    detour, found = known.census.detour, known.disagreement
    # Ranks that met in different collectives wait for each other as a result.
    circle = detour.ranks if detour and not found else ()
    missing = {*known.census.roots, *(found.odd if found else ())}
    if detour and not detour.undecided:
        missing |= set(circle)
    # Most are missing where only a few called a collective: then those few are to blame.
    about_them = not named.isdisjoint({*missing, *circle, *(found.ranks if found else ())})
    return tuple(sorted(missing - named)) if about_them and not _are_most(missing, known) else ()


def _are_most(ranks: Set[int], known: Blame) -> bool:
    return len(ranks) * 2 > len(known.members)


def unread(wreckage: Wreckage, named: Set[int]) -> tuple[int, ...]:
    """Ranks of which nothing is known, while an answer rests on the positions of the others."""
    known = blame.of(wreckage)
    if known.explained or not (known.census.standstills or known.census.messages):
        return ()
    return tuple(sorted(({*known.census.unread} | known.members - {*wreckage.recorders}) - named))
