"""Groups that do the same thing side by side: the tensor-parallel groups of all replicas, say.

A pair does not show which of its two ranks is wrong, but the pairs beside it do: they run the same
program, so at the same position of theirs they have what both should have. Which groups are
siblings no recorder says; those are that did the same at every earlier position.
"""

from __future__ import annotations

from collections.abc import Mapping

from holdfast.analysis.collectives import groups
from holdfast.analysis.collectives.groups import Recorders
from holdfast.analysis.collectives.signature import Kind, kind
from holdfast.analysis.scene.scene import Collective

ENOUGH = 3
"""earlier positions that must agree before a group's word counts for another one"""
LOOK_BACK = 64
"""positions compared"""

Positions = Mapping[int, Mapping[int, Collective]]
"""sequence -> rank -> what it had there"""


def of(group: str, sequence: int, recorders: Recorders) -> dict[str, Positions]:
    """The siblings of that group, by what they did up to that position."""
    known = groups.indexed(recorders)
    own = known.kinds.get(group, {})
    past = {n: own[n] for n in range(sequence - LOOK_BACK, sequence) if n in own}
    ranks = known.seen.get(group, frozenset())
    return {
        other: known.met[other]
        for other, theirs in known.kinds.items()
        if other != group and ranks.isdisjoint(known.seen.get(other, ())) and _alike(past, theirs)
    }


def _alike(past: Mapping[int, Kind | None], theirs: Mapping[int, Kind | None]) -> bool:
    """All had the same, wherever both were."""
    if len(past) >= ENOUGH and None not in past.values() and past.items() <= theirs.items():
        return True  # the usual case, and quicker
    common = [n for n in past if n in theirs]
    return len(common) >= ENOUGH and all(
        past[n] is not None and past[n] == theirs[n] for n in common
    )


def beside(group: str, sequence: int, recorders: Recorders) -> frozenset[int]:
    """The ranks of its siblings that came to that position."""
    found = of(group, sequence, recorders).values()
    return frozenset().union(*(positions.get(sequence, ()) for positions in found))


def votes(group: str, sequence: int, recorders: Recorders, *, at_least: int = 1) -> dict[int, Kind]:
    """What the ranks of its siblings had at that position, as far as `at_least` so many of a group
    came to it: one alone may be the one that left a collective out."""
    return {
        rank: kind(c)
        for positions in of(group, sequence, recorders).values()
        if len(positions.get(sequence, {})) >= at_least
        for rank, c in positions[sequence].items()
    }


def is_whole(group: str, sequence: int, recorders: Recorders) -> bool:
    """All its members were seen in it, so no other rank can be one."""
    seen = len(groups.seen_in(group, recorders))
    if members := groups.listed_members(group, recorders):
        return seen >= len(members)
    beside = of(group, sequence, recorders)
    return bool(beside) and seen >= max(len(groups.seen_in(o, recorders)) for o in beside)
