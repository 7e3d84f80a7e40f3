"""Read torch's flight recorder: which collectives a rank entered, and which are over.

The entries are the only source. 'pg_status' looks handier but misleads: its keys are numbers
local to the rank, not names of groups; it counts sends and receives too; and 'last completed'
lags behind (seen on torch 2.13 with Gloo: entry 9 retired, 'last completed' 8). An entry is
itself retired a moment after its collective has returned to the script.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

import msgspec

from holdfast.signals import Collective, Recorder


class _Entry(msgspec.Struct):
    """What we read of an entry; torch writes more, and more with every version."""

    process_group: tuple[str, ...]
    collective_seq_id: int
    profiling_name: str = ""
    input_sizes: list[list[int]] | None = None
    input_dtypes: list[str] | None = None
    state: str | None = None
    retired: bool | None = None
    is_p2p: bool | None = None
    time_created_ns: int | None = None
    timeout_ms: int | None = None


class _Group(msgspec.Struct):
    name: str = ""
    ranks: str = ""
    """'[0, 1]'; Gloo leaves both empty"""


class _Document(msgspec.Struct):
    entries: list[_Entry] | None = None
    pg_config: dict[str, _Group] | None = None


def parse(document: bytes) -> Recorder:
    """The recorder of one rank, from the answer of `probe.recorder_query.ask`.

    That is one document, or a list of two from a CUDA build: NCCL's and that of the other
    backends. Group '0' may then have both backends, each with its own sequence, so groups of
    other backends are called '0 (gloo)' there, on every rank alike.
    Raises ValueError when it is not a recorder's document.
    """
    try:
        read = msgspec.json.decode(document, type=_Document | list[_Document])
    except (msgspec.MsgspecError, UnicodeError, RecursionError) as problem:
        raise ValueError(f"not a flight recorder's document: {problem}") from None
    several = isinstance(read, list)
    documents = read if isinstance(read, list) else [read]
    entries = [entry for part in documents for entry in part.entries or ()]
    listed = (_collective(entry, qualify=several) for entry in entries if not entry.is_p2p)
    return _recorder(listed, members=_members(documents[0]) if documents else {})


def _members(document: _Document) -> dict[str, tuple[int, ...]]:
    """Of NCCL's groups, whose document comes first."""
    return {
        group.name: ranks
        for group in (document.pg_config or {}).values()
        if (ranks := tuple(int(number) for number in re.findall(r"\d{1,9}", group.ranks)))
    }


def _collective(entry: _Entry, *, qualify: bool) -> Collective:
    if not entry.process_group:
        raise ValueError("not a flight recorder's document: an entry without its group")
    backend, _, op = entry.profiling_name.rpartition(":")
    name = entry.process_group[0]
    return Collective(
        group=f"{name} ({backend})" if qualify and backend != "nccl" else name,
        sequence=entry.collective_seq_id,
        op=op,
        backend=backend,
        shape=_shape(entry),
        # Only 'retired' can be trusted: Gloo's entries stay 'scheduled' for ever, and NCCL's say
        # 'completed' while their kernels still wait (seen on an H200, torch 2.11, where asking
        # for the dump itself marked 40 waiting collectives so).
        finished=bool(entry.retired),
        created=(entry.time_created_ns or 0) / 1e9,
        timeout=(entry.timeout_ms or 0) / 1e3,
    )


def _shape(entry: _Entry) -> str:
    """'[[4], [2, 3]] Float, Half'; '' for a barrier."""
    types = ", ".join(dict.fromkeys(entry.input_dtypes or ()))
    return f"{entry.input_sizes} {types}".strip() if entry.input_sizes else ""


def _recorder(
    collectives: Iterable[Collective], *, members: dict[str, tuple[int, ...]]
) -> Recorder:
    listed = sorted(collectives, key=lambda collective: collective.created)
    # Of operations issued as one (coalesced), only the entry of the whole is ever completed.
    over = {(c.group, c.sequence) for c in listed if c.finished}
    entered: dict[str, int] = {}
    finished: dict[str, int] = {}
    for collective in listed:
        group, sequence = collective.group, collective.sequence
        entered[group] = max(sequence, entered.get(group, 0))
        finished.setdefault(group, 0)
        if (group, sequence) in over:
            finished[group] = max(sequence, finished[group])
    return Recorder(
        collectives=tuple(
            msgspec.structs.replace(c, finished=True) if (c.group, c.sequence) in over else c
            for c in listed
        ),
        entered=entered,
        finished=finished,
        members=members,
    )
