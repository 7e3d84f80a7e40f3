"""Which rank waits where: what the flight recorders of a job that is over say, taken together.

In each group the ranks are compared at the first position that is not over. A rank that
entered it waits; one that has a recorder and never entered it is absent; one that left no recorder
is unread, and may be either. Followed from group to group, the waits lead to the ranks that wait
for no other.

An entry counts as entered whatever its state: a rank that sent another size than the others is
'completed' by NCCL, while its counters lag behind (seen on an H200, torch 2.11).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence, Set

import msgspec

from holdfast.analysis.collectives import detours, groups, messages, stacks, wait_graph
from holdfast.analysis.collectives.detours import Detour
from holdfast.analysis.collectives.groups import Recorders, is_default
from holdfast.analysis.collectives.messages import Message
from holdfast.analysis.collectives.mismatch import among
from holdfast.analysis.collectives.positions import OpenCollectives, Wait, holding
from holdfast.analysis.collectives.signature import Mismatch
from holdfast.analysis.scene.scene import Collective, Recorder, Stack


class Standstill(msgspec.Struct, frozen=True, kw_only=True):
    """A group at the first of its collectives that is not over."""

    group: str
    sequence: int
    op: str = ""
    shape: str = ""
    waiting: tuple[int, ...] = ()
    """entered it, and it is not over for them"""
    absent: tuple[int, ...] = ()
    """never entered it, as their own recorders show"""
    unread: tuple[int, ...] = ()
    """members, or perhaps members, whose recorders there are none of"""
    passed: tuple[int, ...] = ()
    """for them it is over"""
    members_known: bool = True
    """False for Gloo's smaller groups: only ranks that were seen in it are known to belong"""
    last: dict[int, int] = {}
    """absent rank -> the last position it entered in this group; 0 when none is recorded"""
    where: str = ""
    """'in all_reduce() at train.py:30': where most of the waiting ranks called it"""
    since: float = 0.0
    """wall seconds: when the first of them entered it; 0 unknown"""
    timeout: float = 0.0
    """seconds, 0 unknown: the wait began at the timeout's end minus this"""

    @property
    def title(self) -> str:
        place = f"#{self.sequence}" + ("" if is_default(self.group) else f" of group {self.group}")
        return f"{self.op or 'collective'} {place}"


class WaitCensus(msgspec.Struct, frozen=True, kw_only=True):
    standstills: tuple[Standstill, ...] = ()
    """one for each collective that a rank is in, the one entered first before the others"""
    messages: tuple[Message, ...] = ()
    """sends and receives that are not over and whose other side never came"""
    mismatch: Mismatch | None = None
    roots: tuple[int, ...] = ()
    """ranks with a recorder that others wait for and that wait for no rank themselves"""
    either: tuple[int, ...] = ()
    """ranks with sends open, one of which does not wait, while the others wait for it"""
    unseen: tuple[int, ...] = ()
    """ranks without a recorder that the waits lead to, where no other rank is missing"""
    inside: tuple[int, ...] = ()
    """ranks that the waits lead to and that are in a collective which all its members have
    entered: one of their GPUs never came to it, or the network between them lost it"""
    near: tuple[int, ...] = ()
    """ranks that one of the unseen may wait for itself, as far as recorders show: it waits for
    their GPUs, they left a collective out, or they entered none"""
    victims: tuple[int, ...] = ()
    """ranks whose waits lead to one of these"""
    ring: tuple[int, ...] = ()
    """ranks that wait for each other in a circle, each one for the next"""
    detour: Detour | None = None
    """of such a circle: which ranks left the way that the others took"""
    unread: tuple[int, ...] = ()
    """members of the job without a recorder"""
    empty: tuple[int, ...] = ()
    """ranks whose recorder holds nothing: it was off, or they never entered a collective"""
    last_seen: dict[int, str] = {}
    """root -> where it last entered a collective: 'all_reduce #10 in step() at train.py:30'"""

    def of(self, rank: int) -> Standstill | None:
        """Where that rank waits."""
        return next((s for s in self.standstills if rank in s.waiting), None)


def take(
    recorders: Recorders, members: Iterable[int] = (), *, partial: frozenset[int] = frozenset()
) -> WaitCensus:
    """Of those recorders; `members` are all ranks the job is known to have had, `partial` those of
    which only some positions are known."""
    if not recorders:
        return WaitCensus(unread=tuple(sorted(set(members))))
    recorders = groups.named(recorders)
    told = recorders.listed
    posted = messages.open_ones(recorders, told)
    unanswered = messages.unanswered(posted)
    everyone = (
        frozenset(members)
        | recorders.keys()
        | set(range(max(recorders.keys() - partial, default=0)))
        | {member for ranks in told.values() for member in ranks}
        | {message.peer for message in unanswered}
    )
    unread = everyone - recorders.keys()
    positions = OpenCollectives(recorders, ended=(), unread=unread, partial=partial)
    waits = {rank: own for rank in recorders if (own := positions.of(rank))}
    graph = wait_graph.of_waits(waits)
    # A send that no rank takes lets its script go on; one whose receiver has come is in flight.
    inside = {
        r
        for r in graph.ends & waits.keys()
        if not all(w.only_sends and w.awaited for w in waits[r])
    }
    inside |= _beside(inside, waits)
    inside |= {m.peer for r in inside for m in posted[r] if messages.counterpart(m, posted)}
    vague = (graph.ends & partial) - _surely_missing(waits)
    # A group without a recorder of any member is listed nowhere: each may wait for another one.
    unseen = graph.ends & (unread | vague)
    unseen = unseen | unread if unseen & unread else unseen
    empty = {rank for rank, recorder in recorders.items() if not recorder.entered}
    # Those who wait for each other wait for ever, and then one of them left the way. One that has
    # entered nothing may belong to any group.
    near = inside.union(empty, *graph.circles) | positions.partners(graph.ends & unread)
    return WaitCensus(
        standstills=tuple(_standstills(waits, positions)),
        messages=unanswered,
        mismatch=among(recorders, failed=True, complete=not unread),
        roots=tuple(sorted(graph.ends - unread - inside - vague - graph.either)),
        either=tuple(sorted(graph.either)),
        unseen=tuple(sorted(unseen)),
        inside=tuple(sorted(inside)),
        near=tuple(sorted(near | _near(waits, graph.ends & unread))),
        victims=tuple(sorted(graph.led)),
        ring=graph.ring,
        detour=detours.find(graph.circles, waits, recorders),
        unread=tuple(sorted(unread)),
        empty=tuple(sorted(empty)),
        last_seen={
            rank: _last_seen(recorders[rank])
            for rank in sorted((graph.ends | set(graph.ring)) & recorders.keys())
        },
    )


def _beside(inside: Set[int], waits: Mapping[int, Iterable[Wait]]) -> set[int]:
    """All whose GPUs are in the same collectives, whether or not another rank waits for them: any
    may be the one that differs."""
    own = [wait for rank in inside for wait in waits[rank]]
    places = {wait.place for wait in own if wait.on_gpu and not wait.awaited}
    return {
        r for r, all_own in waits.items() if any(w.on_gpu and w.place in places for w in all_own)
    }


def _near(waits: Mapping[int, Iterable[Wait]], unseen: Set[int]) -> set[int]:
    """Where a script runs ahead of its GPU, and it is not known how far its GPU has come; and where
    the few ranks of a group may have met with different sizes."""
    return {
        rank
        for rank, own in waits.items()
        for wait in holding(own)
        if not is_default(wait.group) or (wait.backend != "gloo" and not wait.on_gpu)
        if not wait.absent and not wait.behind
        if not unseen.isdisjoint(wait.unread)
    }


def _surely_missing(waits: Mapping[int, Iterable[Wait]]) -> set[int]:
    shared = {id(wait.absent): wait.absent for own in waits.values() for wait in own}
    return set().union(*shared.values())


def _standstills(
    waits: Mapping[int, Iterable[Wait]], positions: OpenCollectives
) -> list[Standstill]:
    places: dict[tuple[str, int], list[Wait]] = {}
    for wait in (w for own in waits.values() for w in own if not w.is_message):
        places.setdefault(wait.place, []).append(wait)
    return sorted((_standstill(own, positions) for own in places.values()), key=lambda s: s.since)


def _standstill(waiting: Sequence[Wait], positions: OpenCollectives) -> Standstill:
    first = waiting[0]
    group, sequence = first.place
    recorders = positions.recorders
    seen = recorders.met.get(group, {}).get(sequence, {})
    entries = {w.rank: seen[w.rank] for w in waiting if w.rank in seen}
    entry = next(iter(entries.values()), None)
    inside = {wait.rank for wait in waiting}
    held = {*inside, *first.absent}
    return Standstill(
        group=group,
        sequence=sequence,
        op=entry.op if entry else "",
        shape=entry.shape if entry else "",
        waiting=tuple(sorted(inside)),
        absent=first.absent,
        unread=first.unread,
        passed=tuple(r for r in positions.members(group) if r not in held),
        members_known=positions.members_known(group),
        last={rank: recorders[rank].entered.get(group, 0) for rank in first.absent},
        where=_commonest_place(entries.values()),
        since=min((c.created for c in entries.values() if c.created), default=0.0),
        timeout=max((c.timeout for c in entries.values()), default=0.0),
    )


# --- where in the code ---------------------------------------------------------------------------


def place(collective: Collective) -> str:
    """'in step() at train.py:30'; '' when its stack was not kept."""
    return stacks.where(Stack(frames=collective.frames, active=False, holds_gil=False))


def _commonest_place(collectives: Iterable[Collective]) -> str:
    counted = Counter(c.frames for c in collectives if c.frames)
    most = counted.most_common(1)
    return stacks.where(Stack(frames=most[0][0], active=False, holds_gil=False)) if most else ""


def _last_seen(recorder: Recorder) -> str:
    last = max((*recorder.collectives, *recorder.messages), key=lambda c: c.created, default=None)
    if last is None:
        return ""
    of_group = "" if is_default(last.group) else f" of group {last.group}"
    return f"{last.op or 'collective'} #{last.sequence}{of_group} {place(last)}".strip()
