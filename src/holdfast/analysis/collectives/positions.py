"""The collectives and messages a rank is in that are not over, and the ranks missing from each.

A script runs ahead of its GPU: it may have asked for a collective that its GPU never comes to,
because it is stuck in an earlier one. A member that has asked for a collective and is still in
one that it asked for before is `behind`.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import cached_property
from typing import NamedTuple

import msgspec

from holdfast.analysis.collectives import groups, messages, siblings
from holdfast.analysis.collectives.groups import Recorders, is_default
from holdfast.analysis.collectives.messages import Message
from holdfast.analysis.collectives.signature import ONE_SIDED
from holdfast.analysis.scene.scene import Collective


class Wait(msgspec.Struct, frozen=True, kw_only=True):
    """One rank inside one collective that is not over."""

    rank: int
    group: str = ""
    """'' when only its stack, or it itself, shows that it waits"""
    sequence: int = 0
    op: str = ""
    absent: tuple[int, ...] = ()
    """living members that never entered it"""
    behind: tuple[int, ...] = ()
    """members that have asked for it, and are still in what they asked for before; none of a rank
    that is so itself, for it waits there"""
    gone: tuple[int, ...] = ()
    """members that have ended"""
    alone: bool = False
    """in a group in which no other rank was ever seen: which rank it waits for is not known"""
    unread: tuple[int, ...] = ()
    """ranks without a recorder that are members, or may be: one of them may be missing"""
    timeout: float = 0.0
    """seconds, 0 when unknown"""
    backend: str = ""
    """'gloo', 'nccl', or '' when unknown"""
    sure: bool = True
    """its stack shows it inside the collective; DDP's show as backward()"""
    on_gpu: bool = False
    """its GPU is known to be in it, whatever its script does meanwhile"""
    is_message: bool = False
    """a send or a receive: `op` names the other side"""
    only_sends: bool = False
    """a script seldom waits for the end of a send"""
    since: float = 0.0
    """when its script asked for it: wall seconds of its clock, 0 unknown"""
    seconds: float = 0.0
    """for how long it had surely waited when the evidence was taken"""

    @property
    def place(self) -> tuple[str, int]:
        return self.group, self.sequence

    @property
    def missing(self) -> frozenset[int]:
        """The ranks it waits for."""
        return frozenset[int]().union(*self.awaited)

    @property
    def awaited(self) -> tuple[tuple[int, ...], ...]:
        """These, as the tuples that many waits share. One that is surely missing explains a wait;
        only where there is none may it be one that left no recorder."""
        sure = tuple(ranks for ranks in (self.absent, self.behind) if ranks)
        return sure or ((self.unread,) if self.unread else ())

    @property
    def title(self) -> str:
        if not self.group or self.is_message:
            return self.op or "a collective"
        name = groups.in_words(self.group)
        return f"{self.op or 'collective'} #{self.sequence}{name}"


class _Group(msgspec.Struct, frozen=True, kw_only=True):
    members: tuple[int, ...]
    """those that have a recorder"""
    known: bool
    """all members are told, or all ranks are members"""
    gone: tuple[int, ...]
    unread: tuple[int, ...]
    over: int
    """the last collective that some member has finished and every one has entered"""


class _Missing(NamedTuple):
    """From one collective: what many waits have in common."""

    absent: tuple[int, ...]
    behind: tuple[int, ...]
    behind_ones: frozenset[int]
    """the same, for each of them to look itself up"""
    unread: tuple[int, ...]


class OpenCollectives:
    """Of all ranks of a world: what many of them share is worked out once."""

    def __init__(
        self,
        recorders: Recorders,
        *,
        ended: tuple[int, ...],
        unread: frozenset[int],
        partial: frozenset[int] = frozenset(),
    ) -> None:
        """`partial`: ranks of which only some positions are known, by their watchdogs' lines."""
        self.recorders, self.ended, self.unread = groups.indexed(recorders), ended, unread
        self.partial = partial
        self.everyone = frozenset((*recorders, *ended, *unread))
        self.groups: dict[str, _Group] = {}
        self.missing: dict[tuple[str, int], _Missing] = {}

    def of(self, rank: int) -> list[Wait]:
        """The first one of each group that is not over, the one entered first before others;
        then its messages."""
        found = []
        for group, sequence in self.first_open.get(rank, {}).items():
            entry = self._entry(rank, group, sequence)
            if entry is not None and entry.started is False and not self._lost_track(rank):
                continue  # its GPU is busy with something before it, and waits for no rank there
            about = self._group(group)
            absent, behind, behind_ones, unread = self._missing(group, sequence)
            wait = Wait(
                rank=rank,
                group=group,
                sequence=sequence,
                op=entry.op if entry else "",
                absent=absent,
                behind=() if rank in behind_ones else behind,
                gone=about.gone,
                alone=not about.known and about.members == (rank,),
                unread=unread,
                timeout=entry.timeout if entry else 0.0,
                backend=entry.backend if entry else "",
                sure=False,
                on_gpu=entry is not None and entry.started is True,
                since=entry.created if entry else 0.0,
            )
            found.append(wait)
        return sorted(found, key=lambda wait: wait.since) + self.messages.get(rank, [])

    def partners(self, unread: Iterable[int]) -> set[int]:
        """Ranks that these, which have no recorder, may wait for themselves: members of a group of
        theirs that do not wait there for them."""
        wanted = set(unread)
        found: set[int] = set()
        for group, members in self.recorders.listed.items():
            if is_default(group) or wanted.isdisjoint(members):
                continue
            found |= {
                rank
                for rank in self._group(group).members
                if self.first_open.get(rank, {}).get(group) is None
            }
        return found | (self._left_one_out if wanted else set())

    @cached_property
    def _left_one_out(self) -> set[int]:
        """Of groups that no recorder lists, one of whose members may be without a recorder: ranks
        that wait for nothing there, while the groups beside it have come further."""
        found: set[int] = set()
        for group, ranks in self.recorders.seen.items():
            if self._group(group).known:
                continue
            last = max(self.recorders[rank].entered[group] for rank in ranks)
            if siblings.is_whole(group, last + 1, self.recorders):
                continue
            if siblings.beside(group, last + 1, self.recorders):
                found |= {r for r in ranks if self.first_open[r].get(group) is None}
        return found

    def _lost_track(self, rank: int) -> bool:
        """Its script is so far ahead that its ring has lost what its GPU is in."""
        own = self.recorders[rank]
        return not any(c.finished or c.started for c in (*own.collectives, *own.messages))

    def members_known(self, group: str) -> bool:
        return self._group(group).known

    def members(self, group: str) -> tuple[int, ...]:
        """Those that have a recorder."""
        return self._group(group).members

    def _entry(self, rank: int, group: str, sequence: int) -> Collective | None:
        return self.recorders.met.get(group, {}).get(sequence, {}).get(rank)

    def _group(self, group: str) -> _Group:
        if group not in self.groups:
            told = frozenset(groups.listed_members(group, self.recorders))
            members = told or (self.everyone if is_default(group) else frozenset())
            blank = {r for r in self.partial if group not in self.recorders[r].entered}
            read = tuple(sorted(groups.read_members(group, self.recorders) - blank))
            unread = self.unread | blank
            own = [self.recorders[rank] for rank in read]
            self.groups[group] = _Group(
                members=read,
                known=bool(members),
                gone=tuple(rank for rank in self.ended if rank in members),
                unread=tuple(sorted(unread & members if members else unread)),
                over=min(
                    max((r.finished.get(group, 0) for r in own), default=0),
                    min((r.entered.get(group, 0) for r in own), default=0),
                ),
            )
        return self.groups[group]

    @cached_property
    def first_open(self) -> dict[int, dict[str, int]]:
        """Rank -> group -> the first of its collectives that is not over."""
        return {
            rank: {
                group: sequence
                for group in own.entered
                if (sequence := self._first_open(rank, group)) is not None
            }
            for rank, own in self.recorders.items()
        }

    def _first_open(self, rank: int, group: str) -> int | None:
        """A recorder may note the end late: what another member has finished, and all have entered
        alike, is over."""
        own, over = self.recorders[rank], self._group(group).over
        sequence = own.finished.get(group, 0) + 1
        while sequence <= over and self._surely_over(rank, group, sequence):
            sequence += 1
        return sequence if sequence <= own.entered.get(group, 0) else None

    def _surely_over(self, rank: int, group: str, sequence: int) -> bool:
        if rank in self.partial:
            return False  # it reported that its time ran out there
        entry = self._entry(rank, group, sequence)
        alike = self.recorders.kinds.get(group, {}).get(sequence)
        return entry is not None and alike is not None and entry.op not in ONE_SIDED

    def _missing(self, group: str, sequence: int) -> _Missing:
        if (group, sequence) not in self.missing:
            absent, behind, unread = [], [], self._group(group).unread
            if unread and not self._group(group).known:
                whole = siblings.is_whole(group, sequence, self.recorders)
                unread = () if whole else unread
            for rank in self._group(group).members:
                if not self._has_reached(rank, group, sequence):
                    absent.append(rank)
                elif self._is_behind(rank, self._entry(rank, group, sequence)):
                    behind.append(rank)
            self.missing[group, sequence] = _Missing(
                tuple(absent), tuple(behind), frozenset(behind), unread
            )
        return self.missing[group, sequence]

    def _has_reached(self, rank: int, group: str, sequence: int) -> bool:
        """Whether it is in that collective or past it: its GPU where that is known, else its
        script."""
        own = self.recorders[rank]
        if own.entered.get(group, 0) < sequence:
            return False
        if own.finished.get(group, 0) >= sequence:
            return True
        entry = self._entry(rank, group, sequence)
        return entry is None or entry.started is not False

    def _is_behind(self, rank: int, entry: Collective | None) -> bool:
        """Where it is not known how far its GPU has come."""
        if entry is None or entry.finished or entry.started is not None:
            return False
        return self._oldest.get(rank, entry.created) < entry.created

    @cached_property
    def _oldest(self) -> dict[int, float]:
        """Rank -> when it asked for the first one that is not over; wall seconds of its clock."""
        found: dict[int, list[float]] = {}
        for rank, places in self.first_open.items():
            entries = (self._entry(rank, *place) for place in places.items())
            found[rank] = [entry.created for entry in entries if entry is not None]
        for rank, own in self._open_messages.items():
            found.setdefault(rank, []).extend(m.since for m in own)
        return {rank: min(times) for rank, times in found.items() if times}

    @cached_property
    def _open_messages(self) -> dict[int, tuple[Message, ...]]:
        return messages.open_ones(self.recorders, self.recorders.listed)

    @cached_property
    def messages(self) -> dict[int, list[Wait]]:
        """Of each rank: the sends and receives that are not over, a batch as one."""
        ended = set(self.ended)
        found: dict[int, list[Wait]] = {}
        for batch in messages.batches(self._open_messages):
            rank, group, sequence = batch[0].rank, batch[0].group, batch[0].sequence
            counterparts = {m: messages.counterpart(m, self._open_messages) for m in batch}
            unanswered = [m for m, other in counterparts.items() if other is None]
            behind = [
                other.rank
                for m, other in counterparts.items()
                if other and not other.on_gpu and self._oldest[other.rank] < other.since
                if m.since <= self._oldest[rank]
            ]
            peers = tuple(dict.fromkeys(m.peer for m in unanswered))
            # Of several posted as one, each may have been answered already: one that is still
            # awaited explains it, else any of them may.
            if len(batch) > 1 and behind:
                peers = ()
            doubtful = peers if len(peers) > 1 else ()
            known = self.unread | self.recorders.keys() if doubtful else self.unread
            wait = Wait(
                rank=rank,
                group=group,
                sequence=sequence,
                op=messages.words(unanswered or batch),
                absent=tuple(p for p in peers if p in self.recorders and not doubtful),
                behind=tuple(behind),
                gone=tuple(p for p in peers if p in ended),
                unread=tuple(p for p in doubtful or peers if p in known),
                timeout=batch[0].timeout,
                sure=False,
                on_gpu=batch[0].on_gpu,
                is_message=True,
                only_sends=all(m.way == "send" for m in batch),
                since=batch[0].since,
            )
            found.setdefault(rank, []).append(wait)
        return found


def holding(waits: Iterable[Wait]) -> list[Wait]:
    """Of what a rank is in, what holds it up. A GPU does one after the other: where it is not known
    to which it has come, that is the first it was asked for, besides sends."""
    listed = list(waits)
    unknown = [w for w in listed if not w.on_gpu and w.backend != "gloo" and not w.only_sends]
    first = min(unknown, key=lambda wait: wait.since, default=None)
    return [wait for wait in listed if wait is first or wait not in unknown]
