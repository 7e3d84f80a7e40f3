"""Ranks of one group that were not in the same collective, and the odd ones among them. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import msgspec

from holdfast import text
from holdfast.analysis.collectives import call_sites, signature
from holdfast.analysis.collectives.groups import Recorders, is_default
from holdfast.analysis.collectives.positions import OpenCollectives
from holdfast.analysis.collectives.signature import Mismatch
from holdfast.analysis.scene.scene import Stack

FEW = 8
"""numbers by which equal groups may be apart: the collectives of a layer or two"""


class Disagreement(msgspec.Struct, frozen=True, kw_only=True):
    what: str
    """'op', 'size' or 'count'"""
    sides: dict[str, tuple[int, ...]]
    """'all_reduce [4] Float in #11' or 'all_reduce #12' -> who"""
    odd: tuple[int, ...] = ()
    """the minority; () when it cannot be known"""

    places: dict[int, tuple[str, int]] = {}
    """rank -> group and sequence number, where they are known"""
    lines: dict[int, str] = {}
    """rank -> 'in evaluate() at train.py:26', where a dump or a stack shows it"""

    @property
    def ranks(self) -> tuple[int, ...]:
        return tuple(sorted(rank for side in self.sides.values() for rank in side))

    @property
    def others(self) -> tuple[int, ...]:
        """Those that are not odd."""
        odd = set(self.odd)
        return tuple(rank for rank in self.ranks if rank not in odd)

    def words(self) -> str:
        """'ranks 0-2 all_reduce [4] in #11; rank 3 barrier in #11, called in save() at a.py:9'"""
        return "; ".join(
            f"{text.ranks(who)} {what}{self.called(who)}" for what, who in self.sides.items()
        )

    def called(self, side: Sequence[int]) -> str:
        """By the first rank of that side whose line is known; else ''."""
        return next((f", called {self.lines[r]}" for r in side if self.lines.get(r)), "")


def of_mismatch(found: Mismatch) -> Disagreement:
    """As the recorders show it, at one position of one group."""
    sides: dict[str, list[int]] = {}
    for rank, kind in sorted(found.kinds.items()):
        sides.setdefault(f"{kind} in #{found.sequence}", []).append(rank)
    return Disagreement(
        what="op" if found.ops_differ else "size",
        sides={kind: tuple(who) for kind, who in sides.items()},
        odd=() if found.undecided else found.odd,
        places=dict.fromkeys(found.kinds, (found.group, found.sequence)),
    )


def with_lines(
    found: Disagreement, recorders: Recorders, stacks: Mapping[int, Stack]
) -> Disagreement:
    """From the recorders' own frames, or the stacks of ranks that are still in that collective."""
    lines = {
        rank: line
        for rank, place in found.places.items()
        if (line := call_sites.recorded(recorders.get(rank), *place, stacks.get(rank)))
    }
    return msgspec.structs.replace(found, lines=lines)


def of_counts(
    recorders: Recorders, *, partial: frozenset[int] = frozenset()
) -> Disagreement | None:
    """They wait at different numbers: one has finished more than the other ever began.

    An all_reduce ends nowhere before all have come, so the numbers cannot mean the same ones.
    `partial`: ranks of which only some positions are known.
    """
    positions = OpenCollectives(recorders, ended=(), unread=frozenset(), partial=partial)
    for group in dict.fromkeys(g for r in recorders.values() for g in r.entered):
        waiting: dict[int, list[int]] = {}
        for rank, places in sorted(positions.first_open.items()):
            if group in places:
                waiting.setdefault(places[group], []).append(rank)
        if len(waiting) > 1 and (found := _counts(group, waiting, recorders)):
            return found
    return None


def _counts(group: str, waiting: dict[int, list[int]], recorders: Recorders) -> Disagreement | None:
    ahead = max(waiting)
    behind = [rank for number, who in waiting.items() if number < ahead for rank in who]
    ops = {number: _op(recorders, who, group, number) for number, who in waiting.items()}
    if set(ops.values()) & signature.ONE_SIDED or _is_lag(group, waiting, recorders):
        return None
    asked = [rank for rank in behind if recorders[rank].entered[group] >= ahead]
    if asked and (not _apart(ops) or _op(recorders, asked, group, ahead) == ops[ahead]):
        return None  # it had asked for them, so it only was not done with them
    return Disagreement(
        what="count",
        sides={
            f"{ops[number] or 'collective'} #{number}": tuple(waiting[number])
            for number in sorted(waiting)
        },
        odd=minority(list(waiting.values())),
        places={rank: (group, number) for number, who in waiting.items() for rank in who},
    )


def _is_lag(group: str, waiting: dict[int, list[int]], recorders: Recorders) -> bool:
    """The same operation of the same size, a few numbers apart: groups of one name that do the
    same side by side, one of them behind. Code that left one out would show another operation."""
    if is_default(group):
        return False
    entries = [signature.entry(recorders[r], group, n) for n, who in waiting.items() for r in who]
    kinds = {signature.describe(entry) if entry else "" for entry in entries}
    return len(kinds) == 1 and "" not in kinds and max(waiting) - min(waiting) <= FEW


def _apart(ops: dict[int, str]) -> bool:
    """Stuck in another operation, further back than a count that lags by one can explain."""
    known = set(ops.values())
    return max(ops) - min(ops) > 1 and len(known) == len(ops) and "" not in known


def _op(recorders: Recorders, ranks: Sequence[int], group: str, sequence: int) -> str:
    found = (signature.entry(recorders[rank], group, sequence) for rank in ranks)
    return next((entry.op for entry in found if entry), "")


def minority(sides: Sequence[Sequence[int]]) -> tuple[int, ...]:
    """All ranks outside the one largest side; () in a tie."""
    largest = max(map(len, sides))
    if sum(len(side) == largest for side in sides) > 1:
        return ()
    return tuple(sorted(rank for side in sides if len(side) < largest for rank in side))
