"""Which signal told a launcher to stop, in its own log. Pure."""

from __future__ import annotations

from holdfast.analysis.logs.patterns import launchers, trainers
from holdfast.analysis.logs.wreckage import Sighting, Wreckage


def received(wreckage: Wreckage, *names: str) -> tuple[Sighting, ...]:
    """The launcher's own line that it received one of these signals."""
    return tuple(
        s
        for s in wreckage.seen(launchers.DEATH_SIGNAL)
        if (s.fields.get("signal") or s.fields.get("got")) in names
    )


def forwarded(wreckage: Wreckage, name: str) -> tuple[Sighting, ...]:
    """torchrun ends its ranks with SIGTERM, unless it received a signal itself: then it forwards
    that one."""
    return tuple(s for s in wreckage.seen(launchers.CLOSING) if name in s.line.text)


def noticed_by_trainer(wreckage: Wreckage) -> tuple[Sighting, ...]:
    """A trainer's line that its rank received SIGTERM. A launcher sends the same to the others
    after one rank failed: then it says nothing."""
    if wreckage.seen(launchers.CLOSING) or any(one.code != 0 for one in wreckage.exits):
        return ()
    return wreckage.seen(trainers.TOLD_TO_STOP)
