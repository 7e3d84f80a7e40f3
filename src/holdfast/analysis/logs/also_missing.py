"""Ranks that others waited for besides those that an answer names. Pure."""

from __future__ import annotations

from collections.abc import Set

from holdfast import text
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
    if len(known.gone) == 1:  # of several it is not known which
        missing |= {*known.gone}
    if detour and not detour.undecided:
        missing |= set(circle)
    # Most are missing where only a few called a collective: then those few are to blame.
    about_them = not named.isdisjoint(
        {*missing, *circle, *known.gone, *(found.ranks if found else ())}
    )
    return tuple(sorted(missing - named)) if about_them and not _are_most(missing, known) else ()


def _are_most(ranks: Set[int], known: Blame) -> bool:
    return len(ranks) * 2 > len(known.members)


def doubts(wreckage: Wreckage, named: Set[int]) -> tuple[str, ...]:
    """What is not known of other ranks, while an answer rests on the positions of those that are
    known."""
    known = blame.of(wreckage)
    if known.explained or not (known.census.standstills or known.census.messages):
        return ()
    found = []
    if unread := unread_ranks(wreckage, named):
        found.append(f"whether {text.ranks(unread)} came: no flight-recorder dump was given")
    if not known.counted:
        highest = max((*known.members, *named))
        found.append(f"whether there were ranks above {highest}: Gloo's dumps do not show it")
    return tuple(found)


def unread_ranks(wreckage: Wreckage, named: Set[int]) -> tuple[int, ...]:
    known = blame.of(wreckage)
    return tuple(sorted(({*known.census.unread} | known.members - {*wreckage.recorders}) - named))
