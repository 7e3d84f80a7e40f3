"""A rank's own trouble, told apart from what it reports of others. Pure."""

from __future__ import annotations

import msgspec

from holdfast.analysis.logs.patterns import peers, watchdog
from holdfast.analysis.logs.wreckage import LoggedException, LogLine, Wreckage

TIMEOUTS = (
    watchdog.WATCHDOG,
    watchdog.WAIT_TIMEOUT,
    watchdog.PYTHON_WATCHDOG,
    watchdog.DUMP_SIGNALLED,
    watchdog.GLOO_TIMEOUT,
    watchdog.GLOO_WAIT,
    watchdog.BARRIER_ECHO,
    watchdog.STORE_GET,
)
"""a rank that writes these waited for another one"""
DUMPS = (watchdog.DUMP_SIGNALLED, watchdog.DUMP_OBSERVED, watchdog.DUMP_RECEIVED)
"""a living rank answers the timeout of another one with these (torch 2.3 and later)"""
LOSSES = (
    peers.GLOO_CLOSED,
    peers.GLOO_BROKEN,
    peers.NCCL_CLOSED,
    peers.NCCL_REMOTE,
    peers.REMOTE_ERROR,
    peers.STORE_LOST,
    peers.STORE_RESET,
)
LAUNCHERS = frozenset(
    {"ChildFailedError", "CalledProcessError", "ProcessRaisedException", "ProcessExitedException"}
    | {"SubprocessError", "RendezvousClosedError", "RendezvousGracefulExitError"}
    | {
        "RendezvousConnectionError",
        "RendezvousTimeoutError",
        "ActorDiedError",
        "RayActorError",
        "WorkerCrashedError",
        "WorkerGroupError",
        "ControllerError",
        "PreemptionError",
        "TrainingFailedError",
        "WorkerHealthCheckTimeoutError",
        "WorkerHealthCheckFailedError",
        "WorkerGroupStartupTimeoutError",
        "BroadcastCollectiveTimeoutError",
    }
)
"""exceptions by which a launcher reports that another process failed"""
GAVE_UP = "Timed out waiting for "
"""Horovod's launcher, of hosts and tasks that did not come"""
STOPPED = ("KeyboardInterrupt", "SignalException", "SystemExit", "GeneratorExit")
"""not an error: the process was asked to end"""


class Trouble(msgspec.Struct, frozen=True, kw_only=True):
    """A rank's own trouble, by a log pattern of a fault or by an exception."""

    rank: int | None
    slug: str
    """'' for an exception that no fault knows"""
    line: LogLine
    order: int


def troubles(wreckage: Wreckage) -> tuple[Trouble, ...]:
    complaints = _first_complaints(wreckage)
    found = [
        Trouble(rank=one.rank, slug=one.slug, line=one.line, order=one.order)
        for one in wreckage.roots()
    ]
    found += [
        Trouble(rank=one.rank, slug="", line=one.line, order=one.order)
        for one in wreckage.raised
        if tells_a_cause(one) and not one.root_slugs
    ]
    kept = [t for t in found if not _is_fallout(t, complaints)]
    if all(t.line.at is not None for t in kept):
        return tuple(sorted(kept, key=lambda t: (t.line.at or 0.0, t.order)))
    return tuple(sorted(kept, key=lambda t: t.order))


def tells_a_cause(raised: LoggedException) -> bool:
    kind = raised.kind.rpartition(".")[2]
    if kind in ("Exception", "TimeoutException") and raised.text.startswith(GAVE_UP):
        return False
    return not raised.consequence and kind not in LAUNCHERS and kind not in STOPPED


def _first_complaints(wreckage: Wreckage) -> dict[tuple[int, str], int]:
    """(rank, source) -> where it first reported a timeout or a lost peer."""
    found: dict[tuple[int, str], int] = {}
    for one in wreckage.seen(*TIMEOUTS, *LOSSES, watchdog.TAKING_DOWN):
        if one.rank is not None:
            found.setdefault((one.rank, one.line.source), one.order)
    return found


def _is_fallout(trouble: Trouble, complaints: dict[tuple[int, str], int]) -> bool:
    """It came after the same rank had reported, in the same file, a lost or missing other rank."""
    if trouble.rank is None:
        return False
    complained = complaints.get((trouble.rank, trouble.line.source))
    return complained is not None and complained < trouble.order
