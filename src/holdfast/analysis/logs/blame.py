"""Which ranks report their own trouble, which only that of others, which are silent. Pure.

The loudest lines of a log come from the ranks that waited. So: a rank with its own error comes
first; then one that ended by a signal from outside the job; then one that the others wait for by
their positions; and last one that is silent where a living rank would have left a sign.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

import msgspec

from holdfast import text
from holdfast.analysis.collectives import groups, standstills
from holdfast.analysis.collectives.standstills import Standstill, WaitCensus
from holdfast.analysis.logs import disagreement, own_errors, vanished
from holdfast.analysis.logs.disagreement import Disagreement
from holdfast.analysis.logs.own_errors import DUMPS, LOSSES, TIMEOUTS, Trouble
from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.patterns import kernel, watchdog
from holdfast.analysis.logs.wreckage import Exit, Sighting, Wreckage, quote
from holdfast.analysis.scene.scene import Recorder
from holdfast.findings import Evidence


class Blame(msgspec.Struct, frozen=True, kw_only=True):
    members: frozenset[int] = frozenset()
    own: tuple[Trouble, ...] = ()
    """earliest first, as far as that is known"""
    ended: tuple[Exit, ...] = ()
    """exits that are not a consequence of another rank's, the first one seen first"""
    waited: frozenset[int] = frozenset()
    """ranks that reported a timeout, or are in a collective that never ended"""
    lost: frozenset[int] = frozenset()
    """ranks that reported a broken connection"""
    silent: tuple[int, ...] = ()
    """members that reported nothing and left no recorder, while others complain"""
    gone: tuple[int, ...] = ()
    """the silent ones, where connections closed before any rank timed out: one has ended"""
    signalled: bool = False
    """a rank called for dumps: every living NCCL rank would have answered"""
    census: WaitCensus = WaitCensus()
    disagreement: Disagreement | None = None
    counted: bool = False
    """the number of ranks is known, so that no unknown rank can be missing"""

    @property
    def place(self) -> Standstill | None:
        """The collective that hangs: one from which a rank is missing, if there is one."""
        roots = set(self.census.roots)
        found = self.census.standstills
        return max(found, key=lambda s: (bool(roots & {*s.absent}), len(s.waiting)), default=None)

    @property
    def all_inside(self) -> bool:
        """All ranks came, and still it did not end: no rank is late, something between them is."""
        place = self.place
        if place is None or not self.counted:
            return False
        return not place.absent and not place.unread and len(place.waiting) > 1

    @property
    def victims(self) -> tuple[int, ...]:
        return tuple(sorted(self.waited | self.lost))

    @property
    def explained(self) -> bool:
        """A rank reports its own trouble, or was ended from outside."""
        return bool(self.own or self.ended)

    def others(self, *culprits: int | None) -> tuple[int, ...]:
        return tuple(sorted((self.waited | self.lost).difference(culprits)))


def of(wreckage: Wreckage) -> Blame:
    """Every face asks this about the same wreckage, so the answer is kept there."""
    return wreckage.memo(_of)


def _of(wreckage: Wreckage) -> Blame:
    torn = vanished.torn_out(wreckage)
    recorders = vanished.with_true_ends(_comparable(wreckage), torn)
    members = _members(wreckage)
    told_only = frozenset(recorders) - {one.rank for one in wreckage.ranks if one.dumped}
    taken = standstills.take(recorders, members, partial=told_only)
    inside = {rank for standstill in taken.standstills for rank in standstill.waiting}
    inside |= {message.rank for message in taken.messages}
    waited = _ranks_of(wreckage.seen(*TIMEOUTS)) | inside
    lost = _ranks_of(wreckage.seen(*LOSSES))
    own = own_errors.troubles(wreckage)
    ended = _ended(wreckage, waited | lost)
    troubled = {t.rank for t in own} | {e.rank for e in ended}
    silent = _silent(wreckage, members, waited | lost, troubled)
    gone = () if troubled else _gone(wreckage, silent)
    return Blame(
        members=members,
        own=own,
        ended=ended,
        waited=frozenset(waited - troubled),
        lost=frozenset(lost - troubled),
        silent=silent,
        gone=gone,
        signalled=bool(wreckage.seen(*DUMPS)) or any(r.dumped for r in wreckage.ranks),
        census=vanished.without_torn_out(taken, torn, gone=bool(gone)),
        disagreement=_disagreement(wreckage, recorders, taken, told_only, torn=bool(gone)),
        counted=wreckage.world_size is not None or any(r.members for r in recorders.values()),
    )


def _disagreement(
    wreckage: Wreckage,
    recorders: dict[int, Recorder],
    taken: WaitCensus,
    told_only: frozenset[int],
    *,
    torn: bool,
) -> Disagreement | None:
    """`torn`: ranks were torn out of their collectives, and then their counts differ."""
    found: Disagreement | None = None
    if taken.mismatch:
        found = disagreement.of_mismatch(taken.mismatch)
    elif not torn:
        found = disagreement.of_counts(recorders, partial=told_only)
    stacks = {one.rank: one.stack for one in wreckage.ranks if one.stack is not None}
    return disagreement.with_lines(found, recorders, stacks) if found else None


def _comparable(wreckage: Wreckage) -> dict[int, Recorder]:
    """Watchdogs show no types: beside whole dumps their messages count only as positions."""
    dumped = {one.rank for one in wreckage.ranks if one.dumped}
    found = _told_apart(wreckage, wreckage.recorders, dumped)
    for rank in found.keys() - dumped:
        known = found[rank]
        # A watchdog catches the first one that is not over.
        first = {c.group: c.sequence - 1 for c in reversed(known.collectives) if not c.finished}
        found[rank] = msgspec.structs.replace(
            known,
            finished=first | known.finished,
            collectives=() if dumped else known.collectives,
        )
    return groups.named(found)


def _told_apart(
    wreckage: Wreckage, recorders: dict[int, Recorder], dumped: set[int]
) -> dict[int, Recorder]:
    """Parts of a split group share a name, and older torch counts its groups in each process for
    itself. Where two ranks have the same number in a group, its name means several groups."""
    numbers: dict[tuple[str, str], set[int]] = {}
    for seen in wreckage.seen(watchdog.STATUS):
        if seen.rank is not None and "member" in seen.fields:
            place = seen.fields["group"], seen.fields["member"]
            numbers.setdefault(place, set()).add(seen.rank)
    shared = {group for (group, _), ranks in numbers.items() if len(ranks) > 1}
    shared = {group for group in shared if not groups.is_default(group)}
    return {
        rank: groups.renamed(one, {group: f"{group} of rank {rank}" for group in shared})
        if shared and rank not in dumped
        else one
        for rank, one in recorders.items()
    }


def _ranks_of(seen: Iterable[Sighting]) -> set[int]:
    return {one.rank for one in seen if one.rank is not None}


# --- endings -----------------------------------------------------------------------------------


def _ended(wreckage: Wreckage, complained: set[int]) -> tuple[Exit, ...]:
    """An abort after a timeout is torch's own; a code of 1 belongs to whatever was raised."""
    telling = [
        end
        for end in wreckage.exits
        if end.code < 0
        and not end.teardown
        and not (end.code == -signal.SIGABRT and (end.rank is None or end.rank in complained))
        and not (end.code == -signal.SIGTERM and len(wreckage.exits) > 1 and not end.first)
    ]
    return tuple(sorted(telling, key=lambda end: not end.first))


def by_signal(wreckage: Wreckage, *numbers: int, but: str = "") -> tuple[Exit, ...]:
    """Ranks ended by such a signal, without trouble of their own beside that of `but`."""
    blame = of(wreckage)
    troubled = {trouble.rank for trouble in blame.own if not but or trouble.slug != but}
    ended = [end for end in blame.ended if end.rank is None or end.rank not in troubled]
    return tuple(end for end in ended if -end.code in numbers)


def subject(end: Exit) -> str:
    """'rank 2 (pid 1011)', 'local rank 2', 'a process'."""
    pid = f" (pid {end.pid})" if end.pid else ""
    host = f" on {end.host}" if end.host else ""
    if end.rank is not None:
        return f"rank {end.rank}{pid}{host}"
    who = "a process" if end.local_rank is None else f"local rank {end.local_rank}"
    return f"{who}{pid}{host}"


def of_exit(end: Exit) -> Evidence:
    line = end.line
    return Evidence(quote=line.text, source=line.source, line=line.number, rank=end.rank)


# --- silence -----------------------------------------------------------------------------------


GAP = 4
"""ranks that must exist for each one that is missing among them, where no line shows how many
ranks there were"""


def _members(wreckage: Wreckage) -> frozenset[int]:
    """With ranks 0, 1 and 3 in the log there is a rank 2, although it wrote nothing. Every other
    rank missing is another pattern: a part of the job logs, or its logs were not given."""
    known = wreckage.members
    if wreckage.world_size or not known:
        return known
    whole = frozenset(range(max(known) + 1))
    return whole if len(whole - known) * GAP <= len(whole) else known


def _silent(
    wreckage: Wreckage,
    members: frozenset[int],
    complained: set[int],
    troubled: set[int | None],
) -> tuple[int, ...]:
    """Worth something only where most of the others did speak."""
    quiet = [
        rank
        for rank in sorted(members)
        if rank not in complained and rank not in troubled and not _left_a_sign(wreckage, rank)
    ]
    spoke = len(members) - len(quiet)
    return tuple(quiet) if complained and spoke > len(quiet) else ()


def _gone(wreckage: Wreckage, silent: tuple[int, ...]) -> tuple[int, ...]:
    closed = vanished.closed_first(wreckage)
    return silent if closed and not vanished.was_alive(wreckage, set(silent)) else ()


def _left_a_sign(wreckage: Wreckage, rank: int) -> bool:
    remains = wreckage.rank(rank)
    if remains is None:
        return False
    answered = any(s.pattern in {one.name for one in DUMPS} for s in remains.sightings)
    spoke = answered or any(one.kind == "KeyboardInterrupt" for one in remains.raised)
    return remains.finished or remains.dumped or remains.recorder is not None or spoke


def has_log(wreckage: Wreckage, rank: int) -> bool:
    """Its own lines were given, so its silence means something."""
    remains = wreckage.rank(rank)
    return remains is not None and bool(remains.logs or remains.last or remains.sightings)


# --- texts -------------------------------------------------------------------------------------


def first_complaint(wreckage: Wreckage, *more: LogPattern) -> tuple[Sighting, ...]:
    """One line of each rank that waited or lost another one."""
    found: dict[int | None, Sighting] = {}
    for one in wreckage.seen(*TIMEOUTS, *LOSSES, *more):
        found.setdefault(one.rank, one)
    return tuple(found.values())


def complaints(wreckage: Wreckage) -> list[Evidence]:
    return [quote(one) for one in first_complaint(wreckage)]


def positions(wreckage: Wreckage) -> list[Evidence]:
    """Where the ranks were, as far as recorders show; those behind first."""
    place = of(wreckage).place
    if place is None:
        return []
    told = {rank: f"last entered #{n}, never #{place.sequence}" for rank, n in place.last.items()}
    told |= {rank: f"waits in {place.title} {place.where}".rstrip() for rank in place.waiting[:2]}
    return [
        Evidence(quote=words, source="flight recorder", rank=rank)
        for rank, words in list(told.items())[:4]
    ]


def ruled_out(wreckage: Wreckage) -> tuple[str, ...]:
    blame = of(wreckage)
    if blame.own:
        return ()
    found = ["an exception or a crash: no rank reported one"]
    if wreckage.exits and not blame.ended:
        found.append("a kill from outside: the launcher reports none")
    return tuple(found)


def unknown(wreckage: Wreckage, *ranks: int) -> tuple[str, ...]:
    """What would decide it and was not given."""
    found = []
    for rank in ranks:
        remains = wreckage.rank(rank)
        if rank not in wreckage.members:
            heard = text.ranks(wreckage.members)
            found.append(
                f"how many ranks there were: rank {rank} is inferred from lines of {heard}"
            )
        if not has_log(wreckage, rank):
            found.append(f"no log of rank {rank} was given")
        if remains is None or not remains.dumped:
            found.append(f"no flight-recorder dump of rank {rank} was given")
        if remains is None or remains.stack is None:
            found.append(f"where rank {rank} was: no stack of it was given")
    if not ranks and wreckage.world_size is None:
        found.append("how many ranks there were: no line shows the world size")
    if not any(s.kind in ("kernel", "journal") for s in wreckage.sources) and not wreckage.seen(
        *kernel.ALL
    ):
        found.append("what the kernel saw: no kernel log was given")
    return tuple(found)
