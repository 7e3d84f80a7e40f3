"""Read the flight recorder of a living rank: which collectives it entered, and which are over.

The entries are the only source. 'pg_status' looks handier but misleads: its keys are numbers
local to the rank, not names of groups; it counts sends and receives too; and 'last completed'
lags behind (seen on torch 2.13 with Gloo: entry 9 retired, 'last completed' 8). An entry is
itself retired a moment after its collective has returned to the script.
"""

from __future__ import annotations

import msgspec

from holdfast.analysis.collectives import entries
from holdfast.analysis.collectives.entries import Group, RecorderEntry
from holdfast.analysis.scene.scene import Recorder


class _Document(msgspec.Struct):
    entries: list[RecorderEntry] | None = None
    pg_config: dict[str, Group] | None = None


def parse(document: bytes) -> Recorder:
    """The recorder of one rank, from the answer of `probe.recorder_query.ask`.

    That is one document, or a list from a CUDA build: NCCL's, that of the other backends, and that
    of the NCCL groups since torch 2.15. Group '0' may then have both backends, each with its own
    sequence, so groups of other backends are called '0 (gloo)' there, on every rank alike.
    Raises ValueError when it is not a recorder's document.
    """
    try:
        read = msgspec.json.decode(document, type=_Document | list[_Document])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise ValueError(f"not a flight recorder's document: {problem}") from None
    several = isinstance(read, list)
    documents = read if isinstance(read, list) else [read]
    listed = entries.of_groups_that_exist(
        entry
        for number, part in enumerate(documents)
        for entry in part.entries or ()
        # Asked for the third, a torch that has two recorders sends the second again.
        if number < 2 or entry.is_nccl
    )
    timed = entries.timed(listed)
    # Only 'retired' can be trusted: Gloo's entries stay 'scheduled' for ever, and NCCL's say
    # 'completed' while the call has not even returned, since CUDA takes an event that was never
    # recorded for one that is over (seen on an H200, torch 2.11). Such a rank is in that call. One
    # that is retired and not completed failed, or its time ran out: it still misses a rank.
    known = [
        (e, entries.collective(e, finished=entries.is_over(e), qualify=several, timed=timed))
        for e in entries.put_away(entries.with_batches(listed))
    ]
    return entries.recorder(
        (c for e, c in known if not e.is_message),
        messages=(c for e, c in known if e.is_message),
        # Only NCCL's documents list the members: Gloo's has one nameless row for all groups.
        members=entries.members(
            group for part in documents for group in (part.pg_config or {}).values()
        ),
    )
