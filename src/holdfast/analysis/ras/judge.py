"""What an answer of RAS means: which ranks are behind, and whether anything moved since the last.

In a job that moves, ranks differ by a few launches at any moment: a difference counts only where
it stays. Which side is odd is decided by the majority; two halves are not decided.
"""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from holdfast.analysis.ras.answer import RasAnswer, RasCommunicator, RasMember

APART = 1.0
"""seconds between two answers that are to be compared"""
Side = str
"""'behind' or 'ahead': the smaller part, which is the odd one; '' where no part is smaller"""


class RasGap(msgspec.Struct, frozen=True, kw_only=True):
    """The ranks of one communicator have not launched the same."""

    communicator: str
    size: int
    operation: str
    """the one in which they differ most ranks from the rest"""
    most: int
    """how many of it the foremost ranks have launched"""
    least: int
    behind: tuple[RasMember, ...]
    """the named ranks that have launched fewer"""
    ahead: tuple[RasMember, ...]
    count_behind: int
    count_ahead: int
    crossed: tuple[tuple[RasMember, ...], ...] = ()
    """where some ranks are ahead in one operation and behind in another, they called different
    ones: the ranks that did alike, the smallest part first"""

    @property
    def odd(self) -> Side:
        if self.crossed or self.count_behind == self.count_ahead:
            return ""
        return "behind" if self.count_behind < self.count_ahead else "ahead"


def gaps(answer: RasAnswer) -> tuple[RasGap, ...]:
    """Of every communicator that is neither being made nor torn down; the largest first."""
    found = [gap for one in answer.communicators if not one.changing and (gap := _gap(one))]
    return tuple(sorted(found, key=lambda gap: -gap.size))


def _gap(one: RasCommunicator) -> RasGap | None:
    uneven = {op: spread for op, spread in one.launched.items() if len(spread) > 1}
    if not uneven:
        return None
    operation = max(uneven, key=lambda op: max(uneven[op]) - min(uneven[op]))
    spread = uneven[operation]
    most = max(spread)
    told = [m for m in one.members if operation in m.counts]
    return RasGap(
        communicator=one.name,
        size=one.size,
        operation=operation,
        most=most,
        least=min(spread),
        behind=tuple(m for m in told if m.counts[operation] < most),
        ahead=tuple(m for m in told if m.counts[operation] == most),
        count_behind=sum(many for count, many in spread.items() if count < most),
        count_ahead=spread[most],
        crossed=_crossed(one.members, {op: max(spread) for op, spread in uneven.items()}),
    )


def _crossed(
    members: Iterable[RasMember], tops: dict[str, int]
) -> tuple[tuple[RasMember, ...], ...]:
    alike: dict[frozenset[str], list[RasMember]] = {}
    for member in members:
        if member.counts:
            late = frozenset(op for op, top in tops.items() if member.counts.get(op, top) < top)
            alike.setdefault(late, []).append(member)
    if not any(one - other and other - one for one in alike for other in alike):
        return ()
    return tuple(sorted(map(tuple, alike.values()), key=len))


def moved(before: RasAnswer, after: RasAnswer) -> bool | None:
    """Whether any rank has launched something in between; None where the two do not tell."""
    counts = _counts(before)
    shared = {place: now for place, now in _counts(after).items() if place in counts}
    if not shared:
        return None
    return any(counts[place] != now for place, now in shared.items())


def _counts(answer: RasAnswer) -> dict[tuple[str, object], object]:
    """A text shows numbers only where they differ: then the whole spread is compared."""
    found: dict[tuple[str, object], object] = {}
    for one in answer.communicators:
        if one.launched:
            found[one.name, ""] = one.launched
        for member in one.members:
            if member.counts:
                found[one.name, member.rank] = member.counts
    return found


def lasting(before: RasAnswer, after: RasAnswer) -> tuple[RasGap, ...]:
    """The gaps that both show, exactly so, with at least a second between them."""
    if not before.at or after.at - before.at < APART:
        return ()
    known = set(map(_key, gaps(before)))
    return tuple(gap for gap in gaps(after) if _key(gap) in known)


def _key(gap: RasGap) -> tuple[object, ...]:
    late = tuple((m.rank, m.counts[gap.operation]) for m in gap.behind)
    return gap.communicator, gap.operation, gap.most, gap.least, gap.count_behind, late


def whole(answer: RasAnswer) -> RasCommunicator | None:
    """The communicator of all processes, where one is larger than all others: torch's default group
    numbers its ranks as the job does."""
    largest = max((one.size for one in answer.communicators), default=0)
    found = [one for one in answer.communicators if one.size == largest]
    return found[0] if len(found) == 1 and largest >= (answer.processes or 1) else None


def numbers(answer: RasAnswer) -> dict[tuple[str, int | None], int]:
    """(host, pid) -> rank of the job, as far as RAS shows it."""
    group = whole(answer)
    placed = [member for member in group.members if member.pid] if group else []
    found = {member.where: member.rank for member in placed}
    return found if len(found) == len(placed) else {}


def silent_hosts(answer: RasAnswer) -> tuple[str, ...]:
    """Hosts with several processes none of which answers, while some elsewhere do."""
    silent: dict[str, set[int]] = {}
    for one in answer.silent:
        silent.setdefault(one.host, set()).add(one.pid)
    answering = {
        m.host
        for one in answer.communicators
        for m in one.members
        if m.state in ("answers", "left") and m.host
    }
    if not answering:
        return ()
    return tuple(sorted(h for h, pids in silent.items() if len(pids) > 1 and h not in answering))
