"""Messages of torch's watchdog -> a small Recorder, for ranks without a dump. Pure.

'last enqueued work: 11, last completed work: 10' is how far this rank had come in that group, and
the collective that timed out is named with its operation and size: enough to compare ranks.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from holdfast.analysis.logs.patterns import watchdog
from holdfast.analysis.logs.wreckage import Sighting
from holdfast.analysis.scene.scene import Collective, Recorder

_CAUGHT = (watchdog.WATCHDOG.name, watchdog.WAIT_TIMEOUT.name)
"""by the watchdog, or by the rank itself where it waits for the end (blocking wait)"""
DEFAULT = "0"
"""torch's name of the default group"""
_OPS = {
    "ALLREDUCE": "all_reduce",
    "ALLREDUCE_COALESCED": "all_reduce_coalesced",
    "ALLGATHER": "all_gather",
    "_ALLGATHER_BASE": "_all_gather_base",
    "ALLGATHER_COALESCED": "all_gather_into_tensor_coalesced",
    "REDUCE_SCATTER": "reduce_scatter",
    "_REDUCE_SCATTER_BASE": "_reduce_scatter_base",
    "ALLTOALL": "all_to_all",
    "ALLTOALL_BASE": "all_to_all",
    "RECVANYSOURCE": "recv_any_source",
}


_MESSAGES = frozenset({"send", "recv", "recv_any_source", "coalesced"})
OWN_MESSAGES = " (messages of rank"


def recorder(sightings: Iterable[Sighting]) -> Recorder | None:
    """From the sightings of one rank; None when they show no position."""
    ours = [s for s in sightings if s.pattern in (*_CAUGHT, watchdog.STATUS.name)]
    entered: dict[str, int] = {}
    finished: dict[str, int] = {}
    groups: dict[int, str] = {}
    for seen in ours:
        if seen.pattern == watchdog.STATUS.name:
            group = seen.fields.get("group", DEFAULT)
            entered[group] = max(entered.get(group, 0), int(seen.fields["enqueued"]))
            finished[group] = max(finished.get(group, 0), int(seen.fields.get("completed", 0)))
            if "seq" in seen.fields:
                groups[int(seen.fields["seq"])] = group
    collectives = _collectives(ours, groups)
    for one in collectives:
        if one.op in _MESSAGES:
            # Counted by each rank for itself, so that no other rank has the same numbers.
            entered.pop(one.group.partition(OWN_MESSAGES)[0], None)
            finished.pop(one.group.partition(OWN_MESSAGES)[0], None)
        entered[one.group] = max(entered.get(one.group, 0), one.sequence)
    if not entered:
        return None
    return Recorder(collectives=tuple(collectives), entered=entered, finished=finished)


def _collectives(sightings: Sequence[Sighting], groups: dict[int, str]) -> list[Collective]:
    """One for each that timed out. Its line names no group; the status line that follows does."""
    found = {}
    for seen in sightings:
        if seen.pattern not in _CAUGHT or "seq" not in seen.fields:
            continue
        fields = seen.fields
        sequence = int(fields["seq"])
        ran = int(fields.get("ran_ms", 0)) / 1000
        told = fields.get("op", "")
        op = _OPS.get(told, told.lower())
        group = groups.get(sequence, next(iter(groups.values()), DEFAULT))
        found[sequence] = Collective(
            group=f"{group}{OWN_MESSAGES} {seen.rank})" if op in _MESSAGES else group,
            sequence=sequence,
            op=op,
            backend="nccl",
            shape=_shape(fields),
            finished=False,
            created=seen.line.at - ran if seen.line.at is not None else 0.0,
            timeout=int(fields.get("timeout_ms", 0)) / 1000,
        )
    return [found[sequence] for sequence in sorted(found)]


def _shape(fields: dict[str, str]) -> str:
    if "numel_in" in fields:
        return f"[{fields['numel_in']}]"
    return f"[{fields['shape']}]" if "shape" in fields else ""
