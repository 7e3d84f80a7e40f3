"""Ranks that a trainer's own monitor missed: NVRx's, and Ray Train's collectives. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence

import msgspec

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.patterns import trainers
from holdfast.analysis.logs.wreckage import Sighting, Wreckage


class TrainerStall(msgspec.Struct, frozen=True, kw_only=True):
    said: str
    """a clause with the monitor as its subject"""
    seen: tuple[Sighting, ...]
    ranks: tuple[int, ...] = ()
    """those that are the cause, where that is known"""
    noticed: tuple[int, ...] = ()
    """those that a monitor reported"""
    confidence: float = 0.55


def find(wreckage: Wreckage) -> TrainerStall | None:
    if missing := wreckage.seen(trainers.RAY_MISSING):
        said = "Ray Train timed out in a collective that some ranks had not joined"
        return TrainerStall(said=said, seen=missing, ranks=_named(missing), confidence=0.75)
    if missing := () if wreckage.recorders else wreckage.seen(trainers.TORCHFRTRACE_MISSING):
        # It looks at one group after the other: of several findings it knows no order.
        ranks = _named(missing) if len({one.fields["ranks"] for one in missing}) == 1 else ()
        said = "torchfrtrace found a collective that some ranks had not joined"
        return TrainerStall(said=said, seen=missing, ranks=ranks, confidence=0.6 if ranks else 0.4)
    if reported := wreckage.seen(trainers.NVRX_STALLED):
        return _nvrx(reported)
    if hanging := wreckage.seen(trainers.RAY_HANGING):
        seconds = hanging[0].fields["seconds"]
        said = f"Ray Train got no answer from a worker for {seconds} s and gave it up"
        return TrainerStall(said=said, seen=hanging, ranks=sightings.writers(hanging)[:1])
    return None


def _named(seen: Sequence[Sighting]) -> tuple[int, ...]:
    found = re.findall(r"\d+", seen[0].fields["ranks"])
    return tuple(int(rank) for rank in found if len(rank) < 8)


def _nvrx(reported: Sequence[Sighting]) -> TrainerStall:
    """Ranks that wait in a collective send no heartbeat either, so who is reported first says
    nothing. A rank that is in another section than all others does."""
    where = {int(one.fields["rank"]): one.fields.get("section", "") for one in reported}
    odd = [rank for rank, section in where.items() if list(where.values()).count(section) == 1]
    alone = odd if len(odd) == 1 and len(where) > 2 else []
    first = reported[0]
    what = first.fields["what"].rstrip(".")
    return TrainerStall(
        said=f'NVRx\'s monitor of rank {first.fields["rank"]} ended it: "{what}"',
        seen=tuple(reported),
        ranks=tuple(alone),
        noticed=tuple(sorted(where)),
        confidence=0.8 if alone else 0.78,
    )
