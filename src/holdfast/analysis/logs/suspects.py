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
from holdfast.analysis.logs import blame, odd_ranks, own_errors
from holdfast.analysis.logs.patterns import peers, watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.findings import Culprit

_ENDED = (peers.GLOO_CLOSED, peers.GLOO_BROKEN, peers.NCCL_CLOSED, peers.NCCL_REMOTE)
"""a connection that closes or is reset: the process at its other end has ended. One that is
stopped, or whose machine is gone, keeps it open until a timeout"""


_ENDED_NAMES = frozenset(one.name for one in _ENDED)


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
        why.append(f"the recorders of {text.ranks(read)} show scripts, not GPUs")
    return (f"which of them it was: {', and '.join(why)}",)


def find(wreckage: Wreckage) -> Suspect | None:
    known = blame.of(wreckage)
    if known.explained or known.disagreement:
        return None
    found = _behind(wreckage) or _named(wreckage) or _unheard(wreckage) or _inside(wreckage)
    return None if found is None or _ended_by_itself(wreckage, found.ranks) else found


def _ended_by_itself(wreckage: Wreckage, ranks: tuple[int, ...]) -> bool:
    """Its launcher saw it fail: whatever it was, it did not keep the others waiting."""
    return any(e.rank in ranks and e.code > 0 and not e.teardown for e in wreckage.exits)


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
        ended=bool(wreckage.seen(*_ENDED)) and not wreckage.seen(*own_errors.TIMEOUTS),
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
    alive = _was_alive(wreckage, silent)
    return Suspect(
        ranks=silent,
        how="mute" if logged and known.signalled else "unheard",
        victims=known.others(*silent),
        place=known.place,
        one_of=len(silent) > 1,
        ended=not alive and _closed_first(wreckage),
        alive=alive,
        heeded_sigterm=_heeded_sigterm(wreckage, silent),
        seen=blame.first_complaint(wreckage),
    )


def _closed_first(wreckage: Wreckage) -> bool:
    """A connection closed before the first timeout: after it, the first rank to give up closes
    its own. Where no times show the order, a rank that never timed out must have seen it."""
    closed, timeouts = wreckage.seen(*_ENDED), wreckage.seen(*own_errors.TIMEOUTS)
    if not closed or not timeouts:
        return bool(closed)
    if _gloo_timed_out(wreckage):
        return False  # Gloo raises at once on a connection that closes: then none times out
    times = [[one.line.at for one in seen] for seen in (closed, timeouts)]
    if all(at is not None for side in times for at in side):
        first, timeout = (min(at for at in side if at is not None) for side in times)
        return first <= timeout
    firsts = blame.first_complaint(wreckage)
    return any(one.pattern in _ENDED_NAMES for one in firsts)


def _heeded_sigterm(wreckage: Wreckage, silent: tuple[int, ...]) -> bool | None:
    codes = [e.code for e in wreckage.exits if e.rank in silent and e.teardown]
    return all(code == -signal.SIGTERM for code in codes) if codes else None


def _gloo_timed_out(wreckage: Wreckage) -> bool:
    return bool(wreckage.seen(watchdog.GLOO_TIMEOUT, watchdog.GLOO_WAIT))


_LAUNCHERS = ("torchrun", "deepspeed", "torch.multiprocessing", "mpirun", "horovod")


def _was_alive(wreckage: Wreckage, silent: tuple[int, ...]) -> bool:
    """At the time of the timeouts."""
    if _gloo_timed_out(wreckage) or any(e.rank in silent and e.teardown for e in wreckage.exits):
        return True
    told = [end for end in wreckage.exits if end.teller in _LAUNCHERS]
    listed = {end.rank for end in told}
    one_machine = len(wreckage.hosts) < 2 and all(e.local_rank in (None, e.rank) for e in told)
    waited = wreckage.seen(watchdog.WATCHDOG, watchdog.WAIT_TIMEOUT)
    return bool(told and waited) and one_machine and listed.isdisjoint(silent)


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
