"""A rank that Gloo ended because it was sent more than it expected, and left no recorder.

Either it expected too little, or a rank sent too much. The remaining ranks show which: what they
sent is compared with what their own group and the groups beside it have at that position.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.analysis.collectives import groups, siblings, signature
from holdfast.analysis.collectives.groups import Recorders
from holdfast.analysis.collectives.signature import Mismatch
from holdfast.analysis.scene import exits, secondary_errors
from holdfast.analysis.scene.scene import Collective, Scene


class _Place(msgspec.Struct, frozen=True, kw_only=True):
    """A position at which the aborted rank may have met the others."""

    group: str
    sequence: int
    seen: dict[int, Collective]
    against: tuple[int, ...]
    """which of the ranks seen had something else than the groups beside it"""
    fine: bool
    """what they had is what others had as well"""


def ranks(scene: Scene) -> tuple[int, ...]:
    return tuple(e.rank for e in exits.endings(scene) if e.consequence == secondary_errors.MISMATCH)


def find(scene: Scene, open_at: Iterable[tuple[str, int]], recorders: Recorders) -> Mismatch | None:
    gone = ranks(scene)
    if len(gone) != 1:
        return None
    places = [
        place
        for group, sequence in open_at
        if (place := _place(scene, group, sequence, recorders, gone[0])) is not None
    ]
    for place in places:
        if place.against:
            return _mismatch(place, odd=place.against, right=(gone[0],))
    doubtful = [place for place in places if not place.fine]
    if doubtful and len(places) > 1:
        return None  # it may have been any of several groups
    for place in doubtful or places:
        if place.fine:
            return _mismatch(place, odd=gone, right=tuple(sorted(place.seen)))
        return _mismatch(place, odd=(*gone, *place.seen), right=())
    return None


def _place(
    scene: Scene, group: str, sequence: int, recorders: Recorders, gone: int
) -> _Place | None:
    seen = groups.indexed(recorders).met.get(group, {}).get(sequence, {})
    latest = all(recorders[rank].entered[group] <= sequence for rank in seen)
    if not seen or gone in seen or not latest or not _may_be_in(gone, group, sequence, recorders):
        return None
    beside = siblings.votes(group, sequence, recorders)
    usual = set(beside.values())
    against = [r for r, c in seen.items() if usual and signature.kind(c) not in usual]
    all_told = not scene.missing_members and len(recorders.keys() | {gone}) == len(scene.ranks)
    return _Place(
        group=group,
        sequence=sequence,
        seen=seen,
        against=tuple(sorted(against)) if len(usual) == 1 else (),
        fine=len(usual) == 1 if usual else all_told and len(seen) > 1,
    )


def _may_be_in(rank: int, group: str, sequence: int, recorders: Recorders) -> bool:
    if groups.listed_members(group, recorders) or groups.is_default(group) or rank in recorders:
        return groups.belongs(rank, group, recorders)
    return not siblings.is_whole(group, sequence, recorders)


def _mismatch(place: _Place, *, odd: tuple[int, ...], right: tuple[int, ...]) -> Mismatch:
    return Mismatch(
        group=place.group,
        sequence=place.sequence,
        odd=tuple(sorted(odd)),
        right=right,
        undecided=not right,
        kinds={rank: signature.describe(c) for rank, c in sorted(place.seen.items())},
        skipped=False,
        ops_differ=False,
    )
