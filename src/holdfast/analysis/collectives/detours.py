"""Ranks that wait for each other in a circle: which of them left the way that the others took.

Some wait in one collective, the others in another one, and each misses ranks of the other side.
All run the same program, so one of the two comes first. Ranks that have been in both, in their own
groups or in groups that do the same side by side (siblings.py), show which: a rank that is in the
second and never was in the first left it out, unless those that were in the first are the few.
Where no rank has been in both, the larger side is taken to be right; of two equal sides either may
be.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

import msgspec

from holdfast.analysis.collectives import groups, siblings
from holdfast.analysis.collectives.groups import IndexedRecorders
from holdfast.analysis.collectives.positions import Wait

Place = tuple[str, int]
"""group and sequence number"""


class Detour(msgspec.Struct, frozen=True, kw_only=True):
    ranks: tuple[int, ...]
    """that left the way; where it is undecided all that may have"""
    undecided: bool
    left_out: tuple[str, int] | None = None
    """the collective that they left out, or called when the others did not"""


def find(
    circles: Iterable[frozenset[int]],
    waits: Mapping[int, Iterable[Wait]],
    recorders: IndexedRecorders,
) -> Detour | None:
    """`circles`: ranks that wait for each other. One that is undecided leaves all undecided."""
    found = [_of_circle(circle, waits, recorders) for circle in circles]
    if not found:
        return None
    return Detour(
        ranks=tuple(sorted(rank for one in found for rank in one.ranks)),
        undecided=any(one.undecided for one in found),
        left_out=next((one.left_out for one in found if one.left_out), None),
    )


def _of_circle(
    closed: frozenset[int], waits: Mapping[int, Iterable[Wait]], recorders: IndexedRecorders
) -> Detour:
    places: dict[Place, Wait] = {}
    for wait in (w for rank in sorted(closed) for w in waits[rank]):
        if not wait.is_message:
            places.setdefault(wait.place, wait)
    known = _Passages(recorders)
    sure: dict[int, Place] = {}
    doubtful: set[int] = set()
    for first, second in _pairs(closed, waits, places):
        odd, left_out = known.odd_ones(first, second, closed)
        if left_out:
            sure.update(dict.fromkeys(odd, left_out))
        else:
            doubtful |= odd
    if sure:
        place = min(sure.values(), key=lambda one: list(places).index(one))
        return Detour(ranks=tuple(sorted(sure)), undecided=False, left_out=place)
    return Detour(ranks=tuple(sorted(doubtful or closed)), undecided=True)


def _pairs(
    closed: frozenset[int], waits: Mapping[int, Iterable[Wait]], places: Mapping[Place, Wait]
) -> Iterator[tuple[Place, Place]]:
    """A place, and one where a rank is that is missing from it; each pair once."""
    seen = set()
    for place, wait in places.items():
        for rank in closed.intersection(wait.absent):
            for own in waits[rank]:
                pair = frozenset((place, own.place))
                if not own.is_message and own.place in places and pair not in seen:
                    seen.add(pair)
                    yield place, own.place


class _Passages:
    """When each rank was at a place, or at the same one of a sibling group."""

    def __init__(self, recorders: IndexedRecorders) -> None:
        self.recorders = recorders
        self._known: dict[Place, tuple[dict[int, float], frozenset[int]]] = {}

    def at(self, place: Place) -> tuple[dict[int, float], frozenset[int]]:
        """Rank -> when, by its own clock; and all that belong there."""
        if place not in self._known:
            group, sequence = place
            alike = [group, *siblings.of(group, sequence, self.recorders)]
            times = {
                rank: entry.created
                for one in alike
                for rank, entry in self.recorders.met.get(one, {}).get(sequence, {}).items()
            }
            belong = frozenset[int]().union(
                *(groups.read_members(one, self.recorders) for one in alike)
            )
            self._known[place] = times, belong
        return self._known[place]

    def odd_ones(
        self, first: Place, second: Place, closed: frozenset[int]
    ) -> tuple[set[int], Place | None]:
        """Which ranks left the order of the two, and which one they left out, or called when the
        others did not; None where that is undecided."""
        here, belong_here = self.at(first)
        there, belong_there = self.at(second)
        lack_second = (here.keys() - there.keys()) & belong_there
        lack_first = (there.keys() - here.keys()) & belong_here
        both = here.keys() & there.keys()
        first_before = {rank for rank in both if here[rank] < there[rank]}
        second_before = both - first_before
        for kept, lacking, place in (
            (first_before, lack_first, first),
            (second_before, lack_second, second),
        ):
            if len(kept) > len(lacking):
                return lacking & closed, place
            if 0 < len(kept) < len(lacking):
                return kept & closed, place  # it is they who called one more
        if both or len(lack_first) == len(lack_second):
            return (lack_first | lack_second | both) & closed, None
        if len(lack_first) < len(lack_second):
            return lack_first & closed, first
        return lack_second & closed, second
