"""Groups that do the same thing side by side: the tensor-parallel groups of all replicas, say.

A pair does not show which of its two ranks is wrong, but the pairs beside it do: they run the same
program, so at the same position of theirs they have what both should have. Which groups are
siblings no recorder says; those are that did the same at every earlier position.
"""

from __future__ import annotations

from holdfast.analysis.collectives import groups
from holdfast.analysis.collectives.groups import Recorders
from holdfast.analysis.collectives.signature import Kind, kind

ENOUGH = 3
"""earlier positions that must agree before a group's word counts for another one"""
LOOK_BACK = 64
"""positions compared"""

Positions = dict[int, dict[int, Kind]]
"""sequence -> rank -> what it had there"""


def of(group: str, sequence: int, recorders: Recorders) -> dict[str, Positions]:
    """The siblings of that group, by what they did up to that position."""
    past: dict[str, Positions] = {}
    for rank, recorder in recorders.items():
        for c in recorder.collectives:
            if sequence - LOOK_BACK <= c.sequence <= sequence:
                past.setdefault(c.group, {}).setdefault(c.sequence, {})[rank] = kind(c)
    own = past.pop(group, {})
    ranks = groups.seen_in(group, recorders)
    return {
        other: positions
        for other, positions in past.items()
        if ranks.isdisjoint(groups.seen_in(other, recorders)) and _alike(own, positions, sequence)
    }


def _alike(own: Positions, theirs: Positions, before: int) -> bool:
    common = [n for n in own if n in theirs and n < before]
    return len(common) >= ENOUGH and all(
        len({*own[n].values(), *theirs[n].values()}) == 1 for n in common
    )


def votes(group: str, sequence: int, recorders: Recorders) -> dict[int, Kind]:
    """What the ranks of its siblings had at that position, as far as they came to it."""
    found: dict[int, Kind] = {}
    for positions in of(group, sequence, recorders).values():
        found |= positions.get(sequence, {})
    return found


def is_whole(group: str, sequence: int, recorders: Recorders) -> bool:
    """All its members were seen in it, so no other rank can be one."""
    seen = len(groups.seen_in(group, recorders))
    if members := groups.listed_members(group, recorders):
        return seen >= len(members)
    beside = of(group, sequence, recorders)
    return bool(beside) and seen >= max(len(groups.seen_in(o, recorders)) for o in beside)
