"""The collectives a rank has entered that are not over, and the ranks missing from each."""

from __future__ import annotations

from collections.abc import Set

import msgspec

from holdfast.analysis.collectives import groups, signature
from holdfast.analysis.collectives.groups import Recorders, is_default


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One rank inside one collective that is not over."""

    rank: int
    group: str = ""
    """'' when only its stack, or it itself, shows that it waits"""
    sequence: int = 0
    op: str = ""
    absent: tuple[int, ...] = ()
    """living members that never entered it"""
    gone: tuple[int, ...] = ()
    """members that have ended"""
    alone: bool = False
    """in a group in which no other rank was ever seen: which rank it waits for is not known"""
    unread: bool = False
    """a rank that may be a member has no recorder: it may be the one that is missing"""
    timeout: float = 0.0
    """seconds, 0 when unknown"""
    sure: bool = True
    """its stack shows it inside the collective; DDP's show as backward()"""
    seconds: float = 0.0
    """for how long it had surely waited when the evidence was taken"""

    @property
    def place(self) -> tuple[str, int]:
        return self.group, self.sequence

    @property
    def title(self) -> str:
        if not self.group:
            return self.op or "a collective"
        place = f"#{self.sequence}" + ("" if is_default(self.group) else f" of group {self.group}")
        return f"{self.op or 'collective'} {place}"


def open_collectives(
    rank: int, recorders: Recorders, ended: tuple[int, ...], unread: Set[int]
) -> list[Wait]:
    """The first one of each group that is not over, the one entered first before the others."""
    own = recorders.get(rank)
    found = []
    for group, entered in (own.entered if own else {}).items():
        assert own is not None
        sequence = own.finished.get(group, 0) + 1
        if sequence > entered:
            continue
        entry = signature.entry(own, group, sequence)
        others = [r for r in sorted(recorders) if r != rank and groups.belongs(r, group, recorders)]
        known = is_default(group) or bool(groups.listed_members(group, recorders))
        wait = Wait(
            rank=rank,
            group=group,
            sequence=sequence,
            op=entry.op if entry else "",
            absent=tuple(r for r in others if recorders[r].entered.get(group, 0) < sequence),
            gone=tuple(r for r in ended if known and groups.belongs(r, group, recorders)),
            alone=not known and not others,
            unread=any(not known or groups.belongs(r, group, recorders) for r in unread),
            timeout=entry.timeout if entry else 0.0,
            sure=False,
        )
        found.append((entry.created if entry else 0.0, wait))
    return [wait for _, wait in sorted(found, key=lambda pair: pair[0])]
