"""The collectives and messages a rank is in that are not over, and the ranks missing from each."""

from __future__ import annotations

import msgspec

from holdfast.analysis.collectives import gpu_side, groups, messages, signature
from holdfast.analysis.collectives.groups import Recorders, is_default
from holdfast.analysis.collectives.messages import Message


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
    backend: str = ""
    """'gloo', 'nccl', or '' when unknown"""
    sure: bool = True
    """its stack shows it inside the collective; DDP's show as backward()"""
    on_gpu: bool = False
    """its GPU is known to be in it, whatever its script does meanwhile"""
    is_message: bool = False
    """a send or a receive: `op` names the other side"""
    seconds: float = 0.0
    """for how long it had surely waited when the evidence was taken"""

    @property
    def place(self) -> tuple[str, int]:
        return self.group, self.sequence

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
    unread: bool


class OpenCollectives:
    """Of all ranks of a world: what many of them share is worked out once."""

    def __init__(
        self, recorders: Recorders, *, ended: tuple[int, ...], unread: frozenset[int]
    ) -> None:
        self.recorders, self.ended, self.unread = groups.indexed(recorders), ended, unread
        self.everyone = frozenset((*recorders, *ended, *unread))
        self.groups: dict[str, _Group] = {}
        self.absent: dict[tuple[str, int], tuple[int, ...]] = {}
        self.messages = self._open_messages()

    def of(self, rank: int) -> list[Wait]:
        """The first one of each group that is not over, the one entered first before others;
        then its messages."""
        own = self.recorders.get(rank)
        if own is None:
            return []
        found = []
        for group, entered in own.entered.items():
            sequence = own.finished.get(group, 0) + 1
            if sequence > entered:
                continue
            entry = signature.entry(own, group, sequence)
            if entry is not None and entry.started is False:
                continue  # its GPU is busy with something before it, and waits for no rank there
            about = self._group(group)
            wait = Wait(
                rank=rank,
                group=group,
                sequence=sequence,
                op=entry.op if entry else "",
                absent=self._absent(group, sequence),
                gone=about.gone,
                alone=not about.known and about.members == (rank,),
                unread=about.unread,
                timeout=entry.timeout if entry else 0.0,
                backend=entry.backend if entry else "",
                sure=False,
                on_gpu=entry is not None and entry.started is True,
            )
            found.append((entry.created if entry else 0.0, wait))
        in_order = [wait for _, wait in sorted(found, key=lambda pair: pair[0])]
        return in_order + self.messages.get(rank, [])

    def _group(self, group: str) -> _Group:
        if group not in self.groups:
            told = frozenset(groups.listed_members(group, self.recorders))
            members = told or (self.everyone if is_default(group) else frozenset())
            self.groups[group] = _Group(
                members=tuple(sorted(groups.read_members(group, self.recorders))),
                known=bool(members),
                gone=tuple(rank for rank in self.ended if rank in members),
                unread=bool(self.unread & members if members else self.unread),
            )
        return self.groups[group]

    def _absent(self, group: str, sequence: int) -> tuple[int, ...]:
        if (group, sequence) not in self.absent:
            self.absent[group, sequence] = tuple(
                rank
                for rank in self._group(group).members
                if not gpu_side.has_reached(self.recorders[rank], group, sequence)
            )
        return self.absent[group, sequence]

    def _open_messages(self) -> dict[int, list[Wait]]:
        """Of each rank: the sends and receives whose other side has not come, a batch as one."""
        ended = set(self.ended)
        batches: dict[tuple[int, str, int], list[Message]] = {}
        for m in messages.unanswered(self.recorders, self.recorders.listed):
            batches.setdefault((m.rank, m.group, m.sequence), []).append(m)
        found: dict[int, list[Wait]] = {}
        for (rank, group, sequence), batch in batches.items():
            peers = tuple(dict.fromkeys(m.peer for m in batch))
            wait = Wait(
                rank=rank,
                group=group,
                sequence=sequence,
                op=messages.words(batch),
                absent=tuple(p for p in peers if p in self.recorders),
                gone=tuple(p for p in peers if p in ended),
                unread=bool(self.unread & set(peers)),
                timeout=batch[0].timeout,
                sure=False,
                on_gpu=batch[0].on_gpu,
                is_message=True,
            )
            found.setdefault(rank, []).append(wait)
        return found
