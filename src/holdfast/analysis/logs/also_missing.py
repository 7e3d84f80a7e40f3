"""Ranks that others waited for besides those that an answer names. Pure."""

from __future__ import annotations

from collections.abc import Set

from holdfast.analysis.logs import blame
from holdfast.analysis.logs.wreckage import Wreckage


def of_wreckage(wreckage: Wreckage, named: Set[int]) -> tuple[int, ...]:
    """Only where recorders show it, and the answer is about ranks that did not come."""
    known = blame.of(wreckage)
    if known.explained:
        return ()
    detour, odd = known.census.detour, known.disagreement.odd if known.disagreement else ()
    # Ranks that met in different collectives wait for each other as a result.
    left = detour.ranks if detour and not detour.undecided and not odd else ()
    missing = {*known.census.roots, *left, *odd}
    # Most are missing where only a few called a collective: then those few are to blame.
    if named.isdisjoint(missing) or len(missing) * 2 > len(wreckage.members):
        return ()
    return tuple(sorted(missing - named))
