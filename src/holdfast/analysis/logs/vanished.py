"""Ranks whose processes ended without a word, by the connections that closed. Pure.

A rank that loses a connection is torn out of its collectives: it stays away from later ones not by
its own will, and its recorder ends where that happened. So where connections closed before any rank
timed out, one that is silent has gone, and what the recorders of the others lack proves nothing.
"""

from __future__ import annotations

from collections.abc import Set

import msgspec

from holdfast.analysis.collectives import groups
from holdfast.analysis.collectives.standstills import WaitCensus
from holdfast.analysis.logs.own_errors import DUMPS, LOSSES, TIMEOUTS
from holdfast.analysis.logs.patterns import peers, watchdog
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene.scene import Recorder

_ENDED = (peers.GLOO_CLOSED, peers.GLOO_BROKEN, peers.NCCL_CLOSED, peers.NCCL_REMOTE)
"""a connection that closes or is reset: the process at its other end has ended. One that is
stopped, or whose machine is gone, keeps it open until a timeout"""
_ENDED_NAMES = frozenset(one.name for one in _ENDED)
_LAUNCHERS = ("torchrun", "deepspeed", "torch.multiprocessing", "mpirun", "horovod")


def any_closed(wreckage: Wreckage) -> bool:
    return bool(wreckage.seen(*_ENDED))


def is_vaguer(complaint: Sighting) -> bool:
    """Than a closed connection is."""
    return complaint.pattern not in _ENDED_NAMES


def closed_first(wreckage: Wreckage) -> bool:
    """A connection closed before the first timeout: after it, the first rank to give up closes
    its own. Where no times show the order, a rank that never timed out must have seen it."""
    closed, timeouts = wreckage.seen(*_ENDED), wreckage.seen(*TIMEOUTS)
    if not closed or not timeouts:
        return bool(closed)
    if _gloo_timed_out(wreckage):
        return False  # Gloo raises at once on a connection that closes: then none times out
    times = [[one.line.at for one in seen] for seen in (closed, timeouts)]
    if all(at is not None for side in times for at in side):
        first, timeout = (min(at for at in side if at is not None) for side in times)
        return first <= timeout
    firsts = {one.rank: one for one in reversed(wreckage.seen(*TIMEOUTS, *LOSSES))}
    return not all(map(is_vaguer, firsts.values()))


def was_alive(wreckage: Wreckage, silent: Set[int]) -> bool:
    """At the time of the timeouts."""
    if _gloo_timed_out(wreckage) or any(e.rank in silent and e.teardown for e in wreckage.exits):
        return True
    told = [end for end in wreckage.exits if end.teller in _LAUNCHERS]
    listed = {end.rank for end in told}
    one_machine = len(wreckage.hosts) < 2 and all(e.local_rank in (None, e.rank) for e in told)
    waited = wreckage.seen(watchdog.WATCHDOG, watchdog.WAIT_TIMEOUT)
    return bool(told and waited) and one_machine and listed.isdisjoint(silent)


def _gloo_timed_out(wreckage: Wreckage) -> bool:
    return bool(wreckage.seen(watchdog.GLOO_TIMEOUT, watchdog.GLOO_WAIT))


def torn_out(wreckage: Wreckage) -> frozenset[int]:
    """Ranks that lost a connection before their recorders were written, and before any rank had
    given up."""
    if not closed_first(wreckage):
        return frozenset()
    dumps = {one.name for one in DUMPS}
    firsts = {one.rank: one for one in reversed(wreckage.seen(*LOSSES, *DUMPS))}
    return frozenset(
        rank for rank, one in firsts.items() if rank is not None and one.pattern not in dumps
    )


def with_true_ends(recorders: dict[int, Recorder], torn: Set[int]) -> dict[int, Recorder]:
    """NCCL's abort ends what a rank is in, and its recorder notes that as done. So of what those
    ranks were in, done is only what another rank of the group has done as well."""
    if not torn:
        return recorders
    done: dict[str, int] = {}
    for rank, own in recorders.items():
        if rank not in torn:
            for group in own.entered:
                done[group] = max(done.get(group, 0), own.finished.get(group, 0))
    aborted = [recorders[rank].finished for rank in torn & recorders.keys()]
    for group in {group for own in aborted for group in own} - done.keys():
        listed = groups.listed_members(group, recorders)
        if listed and groups.read_members(group, recorders) - torn:
            # A member never entered any of it.
            done[group] = max(own.get(group, 0) for own in aborted) - 1
    return {rank: _ended_at(own, done) if rank in torn else own for rank, own in recorders.items()}


def _ended_at(own: Recorder, done: dict[str, int]) -> Recorder:
    return msgspec.structs.replace(
        own,
        finished={group: min(n, done.get(group, n)) for group, n in own.finished.items()},
        collectives=tuple(
            msgspec.structs.replace(c, finished=False)
            if c.finished and c.sequence > done.get(c.group, c.sequence)
            else c
            for c in own.collectives
        ),
    )


def without_torn_out(census: WaitCensus, torn: Set[int], *, gone: bool) -> WaitCensus:
    """`gone`: a rank has vanished, so that circles of waits may lead to it."""
    kept = msgspec.structs.replace(
        census,
        roots=tuple(rank for rank in census.roots if rank not in torn),
        either=tuple(rank for rank in census.either if rank not in torn),
    )
    return msgspec.structs.replace(kept, ring=(), detour=None) if gone else kept
