"""Which rank the others waited for, when no rank reports trouble of its own. Pure.

Timeouts invert blame: the ranks that report them are the ones that came. What is left is the rank
whose position is behind, that torch or Horovod names, or that is silent.
"""

from __future__ import annotations

import re
import signal

import msgspec

from holdfast import text
from holdfast.analysis.collectives.standstills import Standstill
from holdfast.analysis.logs import blame, odd_ranks, own_errors, vanished
from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.findings import Culprit


class Suspect(msgspec.Struct, frozen=True, kw_only=True):
    ranks: tuple[int, ...]
    how: str
    """'absent': its recorder is behind. 'named': torch names it. 'mute': its log is here, and it
    left no sign where a living one would. 'unheard': nothing of it is here. 'inside': all have
    entered the collective, and it did not end."""
    victims: tuple[int, ...] = ()
    place: Standstill | None = None
    whole: bool = False
    """every member's position is known, and those of the suspects by dumps of their own"""
    one_of: bool = False
    """which of the ranks it was is not known"""
    ended: bool = False
    """others saw its connection close"""
    alive: bool = False
    """its process still existed when the others timed out: its kernel would have closed the
    connections of Gloo, and its launcher would have ended the job at once"""
    heeded_sigterm: bool | None = None
    """it ended at the SIGTERM of its launcher, which a stopped process does not; None: no launcher
    says"""
    seen: tuple[Sighting, ...] = ()

    @property
    def culprit(self) -> Culprit:
        """One of several cannot be picked honestly."""
        return odd_ranks.named(self.ranks, one_of=self.one_of)


def culprit_on(wreckage: Wreckage, suspect: Suspect) -> Culprit:
    """With host and pid, where they are known."""
    remains = wreckage.rank(suspect.ranks[0]) if len(suspect.ranks) == 1 else None
    if remains is None:
        return suspect.culprit
    return Culprit(rank=remains.rank, host=remains.host, pid=remains.pid)


def doubts(wreckage: Wreckage, suspect: Suspect) -> tuple[str, ...]:
    """Which of several it was."""
    if not suspect.one_of:
        return ()
    read = wreckage.recorders.keys() & set(suspect.ranks)
    unread = [rank for rank in suspect.ranks if rank not in read]
    why = [f"{text.ranks(unread)} left no flight recorder"] if unread else []
    if read and suspect.how == "absent":
        why.append(f"{text.ranks(read)} may wait for the end of a send")
    elif read:
        why.append(f"it may itself have waited for {text.ranks(read)}")
    return (f"which of them it was: {', and '.join(why)}",)


MANY = 8
PART = 4
"""of more than `MANY` ranks no more than one in so many may be suspects, where dumps are lost"""


def find(wreckage: Wreckage) -> Suspect | None:
    found = wreckage.memo(_find)
    return None if found is None or _are_too_many(wreckage, found) else found


def too_many(wreckage: Wreckage) -> Suspect | None:
    """So large a part of the job, because dumps are lost, that its names help no reader; and
    then one that seems to wait may be the one that left a collective out."""
    found = wreckage.memo(_find)
    return found if found is not None and _are_too_many(wreckage, found) else None


def _are_too_many(wreckage: Wreckage, found: Suspect) -> bool:
    members = blame.of(wreckage).members.union(found.ranks)
    lost = members - {one.rank for one in wreckage.ranks if one.dumped}
    # Ranks that log are told apart by what they say. And where a single one left no dump, it is the
    # one to look at, whatever else is possible.
    by_dumps = found.how == "inside" or (found.how == "unheard" and not wreckage.sightings)
    if len(lost) < 2 or not by_dumps or not found.one_of:
        return False
    if len(lost) * 2 > len(members):
        return True  # fewer left a dump than left none
    return len(members) > MANY and len(found.ranks) * PART > len(members)


def _find(wreckage: Wreckage) -> Suspect | None:
    known = blame.of(wreckage)
    if known.explained or known.disagreement:
        return None
    found = (
        _gone(wreckage)
        or _behind(wreckage)
        or _named(wreckage)
        or _unheard(wreckage)
        or _inside(wreckage)
    )
    return None if found is None or _ended_by_itself(wreckage, found.ranks) else found


def _ended_by_itself(wreckage: Wreckage, ranks: tuple[int, ...]) -> bool:
    """Its launcher saw it fail: whatever it was, it did not keep the others waiting."""
    return any(e.rank in ranks and e.code > 0 and not e.teardown for e in wreckage.exits)


def _gone(wreckage: Wreckage) -> Suspect | None:
    """Connections closed before any rank gave up, and only these have nothing to say."""
    known = blame.of(wreckage)
    gone = known.gone
    if not gone or not _silence_counts(wreckage, gone):
        return None
    logged = all(blame.has_log(wreckage, rank) for rank in gone)
    return Suspect(
        ranks=gone,
        how="mute" if logged and known.signalled else "unheard",
        victims=known.others(*gone),
        place=known.place,
        one_of=len(gone) > 1,
        ended=True,
        seen=tuple(sorted(blame.first_complaint(wreckage), key=vanished.is_vaguer)),
    )


def _behind(wreckage: Wreckage) -> Suspect | None:
    known = blame.of(wreckage)
    census, place = known.census, known.place
    behind = census.roots or census.either
    if not behind or (place is None and not census.messages):
        return None
    if len(behind) > len(known.waited - set(behind)):
        return None  # most are behind: then those inside are the odd ones
    return Suspect(
        ranks=behind,
        how="absent",
        one_of=not census.roots and len(behind) > 1,
        victims=known.others(*behind),
        place=place,
        whole=known.counted and not known.census.unread and _dumped(wreckage, behind),
        ended=vanished.any_closed(wreckage) and not wreckage.seen(*own_errors.TIMEOUTS),
        seen=blame.first_complaint(wreckage),
    )


def _dumped(wreckage: Wreckage, ranks: tuple[int, ...]) -> bool:
    """A watchdog's count may lag by one behind what the rank had done: seen with NCCL where the
    rank that differed was done with it."""
    return all((remains := wreckage.rank(rank)) and remains.dumped for rank in ranks)


def _named(wreckage: Wreckage) -> Suspect | None:
    told = wreckage.seen(watchdog.LAGGING, watchdog.BARRIER_MISSED)
    late = [s for s in told if "unfinished" not in s.fields]
    ranks = {int(n) for s in late for n in re.findall(r"\d+", s.fields.get("ranks", ""))}
    members = blame.of(wreckage).members
    if not ranks or (members and len(ranks) * 2 > len(members | ranks) > 2):
        return None
    return Suspect(
        ranks=tuple(sorted(ranks)),
        how="named",
        victims=blame.of(wreckage).others(*ranks),
        place=blame.of(wreckage).place,
        seen=tuple(late),
    )


def _unheard(wreckage: Wreckage) -> Suspect | None:
    known = blame.of(wreckage)
    waits = bool(known.census.standstills or known.census.messages)
    # A dump may simply be lost; then one that came may be the one that is missing, where scripts
    # run ahead of their GPUs. In a log, a rank that lives reports a timeout as well.
    lost = bool(known.census.unseen) and not wreckage.sightings
    doubtful = known.census.near if lost else ()
    silent = tuple(sorted({*known.census.unseen, *doubtful})) if waits else known.silent
    dumped = waits and any(remains.dumped for remains in wreckage.ranks)
    if not silent or not (dumped or _silence_counts(wreckage, silent)):
        return None
    if not dumped and not known.silent and not wreckage.recorders.keys() >= set(silent):
        return None  # fewer spoke than were silent
    logged = all(blame.has_log(wreckage, rank) for rank in silent)
    alive = vanished.was_alive(wreckage, set(silent))
    return Suspect(
        ranks=silent,
        how="mute" if logged and known.signalled else "unheard",
        victims=known.others(*silent),
        place=known.place,
        one_of=len(silent) > 1,
        ended=not alive and vanished.closed_first(wreckage),
        alive=alive,
        heeded_sigterm=_heeded_sigterm(wreckage, silent),
        seen=blame.first_complaint(wreckage),
    )


def _heeded_sigterm(wreckage: Wreckage, silent: tuple[int, ...]) -> bool | None:
    codes = [e.code for e in wreckage.exits if e.rank in silent and e.teardown]
    return all(code == -signal.SIGTERM for code in codes) if codes else None


def _inside(wreckage: Wreckage) -> Suspect | None:
    """All came, and it did not end: the waits of all others lead to these."""
    known = blame.of(wreckage)
    inside = known.census.inside
    if len(inside) < 2 or not known.counted or known.census.ring:
        return None
    places = [s for s in known.census.standstills if not s.absent and not s.unread]
    return Suspect(
        ranks=inside,
        how="inside",
        victims=known.others(*inside),
        place=max(places, key=lambda s: len({*s.waiting} & {*inside}), default=None),
        one_of=True,
        seen=blame.first_complaint(wreckage),
    )


def _silence_counts(wreckage: Wreckage, ranks: tuple[int, ...]) -> bool:
    """A rank whose own file was simply not given is silent for that reason."""
    silent = set(ranks)
    apart = any(r.logs for r in wreckage.ranks)
    given = all(blame.has_log(wreckage, rank) for rank in silent)
    dumped = {r.rank for r in wreckage.ranks if r.dumped}
    return given or not apart or dumped == blame.of(wreckage).members - silent
