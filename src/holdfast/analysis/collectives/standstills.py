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
from collections.abc import Iterable, Mapping

import msgspec

from holdfast.analysis.collectives import groups, messages, stacks, wait_graph
from holdfast.analysis.collectives.groups import Recorders, is_default
from holdfast.analysis.collectives.messages import Message
from holdfast.analysis.collectives.mismatch import among
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
    """one for each group that has an open collective, the one entered first before the others"""
    messages: tuple[Message, ...] = ()
    """sends and receives that are not over and whose other side never came"""
    mismatch: Mismatch | None = None
    roots: tuple[int, ...] = ()
    """ranks with a recorder that others wait for and that wait for no rank themselves"""
    unseen: tuple[int, ...] = ()
    """ranks without a recorder that the waits lead to, where no other rank is missing"""
    victims: tuple[int, ...] = ()
    """ranks whose waits lead to one of these"""
    ring: tuple[int, ...] = ()
    """ranks that wait for each other in a circle, each one for the next"""
    unread: tuple[int, ...] = ()
    """members of the job without a recorder"""
    empty: tuple[int, ...] = ()
    """ranks whose recorder holds nothing: it was off, or they never entered a collective"""
    last_seen: dict[int, str] = {}
    """root -> where it last entered a collective: 'all_reduce #10 in step() at train.py:30'"""

    def of(self, rank: int) -> Standstill | None:
        """Where that rank waits."""
        return next((s for s in self.standstills if rank in s.waiting), None)


Index = Mapping[tuple[str, int], Collective]


def take(recorders: Recorders, members: Iterable[int] = ()) -> WaitCensus:
    """Of those recorders; `members` are all ranks the job is known to have had."""
    if not recorders:
        return WaitCensus(unread=tuple(sorted(set(members))))
    recorders = groups.named(recorders)
    told = {group: ranks for r in recorders.values() for group, ranks in r.members.items()}
    unanswered = messages.unanswered(recorders, told)
    everyone = (
        frozenset(members)
        | recorders.keys()
        | {member for ranks in told.values() for member in ranks}
        | {message.peer for message in unanswered}
    )
    indexes = {rank: _index(recorder) for rank, recorder in recorders.items()}
    found = [
        _standstill(group, told.get(group, ()), everyone, recorders, indexes)
        for group in sorted({group for r in recorders.values() for group in r.entered})
    ]
    standstills = sorted((s for s in found if s is not None), key=lambda s: s.since)
    graph = wait_graph.follow(_waits(standstills, unanswered))
    unread = everyone - recorders.keys()
    return WaitCensus(
        standstills=tuple(standstills),
        messages=unanswered,
        mismatch=among(recorders, failed=True, complete=not unread),
        roots=tuple(sorted(graph.ends - unread)),
        unseen=tuple(sorted(graph.ends & unread)),
        victims=tuple(sorted(graph.led)),
        ring=graph.ring,
        unread=tuple(sorted(unread)),
        empty=tuple(sorted(r for r, recorder in recorders.items() if not recorder.entered)),
        last_seen={
            rank: _last_seen(recorders[rank])
            for rank in sorted((graph.ends | set(graph.ring)) & recorders.keys())
        },
    )


def _index(recorder: Recorder) -> Index:
    """Of operations issued as one, the first represents all."""
    found: dict[tuple[str, int], Collective] = {}
    for c in recorder.collectives:
        found.setdefault((c.group, c.sequence), c)
    return found


def _standstill(
    group: str,
    told: tuple[int, ...],
    everyone: frozenset[int],
    recorders: Recorders,
    indexes: Mapping[int, Index],
) -> Standstill | None:
    entered = {r: recorder.entered.get(group, 0) for r, recorder in recorders.items()}
    finished = {r: recorder.finished.get(group, 0) for r, recorder in recorders.items()}
    known = bool(told) or is_default(group)
    belong = frozenset(told) or (everyone if known else frozenset(r for r in entered if entered[r]))
    read = sorted(belong & recorders.keys())
    sequence = _first_open({r: (entered[r], finished[r]) for r in read})
    if sequence is None:
        return None
    waiting = tuple(r for r in read if finished[r] < sequence <= entered[r])
    seen = {r: c for r in waiting if (c := indexes[r].get((group, sequence)))}
    entry = next(iter(seen.values()), None)
    absent = tuple(r for r in read if entered[r] < sequence)
    return Standstill(
        group=group,
        sequence=sequence,
        op=entry.op if entry else "",
        shape=entry.shape if entry else "",
        waiting=waiting,
        absent=absent,
        unread=tuple(sorted((belong if known else everyone) - recorders.keys())),
        passed=tuple(r for r in read if finished[r] >= sequence),
        members_known=known,
        last={r: entered[r] for r in absent},
        where=_commonest_place(seen.values()),
        since=min((c.created for c in seen.values() if c.created), default=0.0),
        timeout=max((c.timeout for c in seen.values()), default=0.0),
    )


def _first_open(positions: Mapping[int, tuple[int, int]]) -> int | None:
    """From (entered, finished) of each rank: the first that some rank has not entered;
    otherwise the first that no rank has finished, for a recorder may note the end late."""
    candidates = sorted({done + 1 for entered, done in positions.values() if done < entered})
    for sequence in candidates:
        if any(entered < sequence for entered, _ in positions.values()):
            return sequence
    furthest = max((done for _, done in positions.values()), default=0)
    return next((n for n in candidates if n > furthest), candidates[-1] if candidates else None)


def _waits(
    standstills: Iterable[Standstill], unanswered: Iterable[Message]
) -> dict[int, frozenset[int]]:
    """Rank -> the ranks it waits for. A rank that is surely missing explains a wait; only where
    there is none may it be one of the ranks that left no recorder."""
    waits: dict[int, frozenset[int]] = {}
    for s in standstills:
        missing = frozenset(s.absent or (s.unread if s.members_known else ()))
        for rank in s.waiting if missing else ():
            waits[rank] = waits.get(rank, frozenset()) | missing
    for message in unanswered:
        waits[message.rank] = waits.get(message.rank, frozenset()) | {message.peer}
    return waits


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
