"""The entries of torch's flight recorder, as every version since 2.2 writes them, as our nouns.

What drifted: the oldest dumps number their groups instead of naming them ('pg_id'), count sends
and receives among the collectives ('seq_id') and report microseconds; JSON writes numbers as texts
in places, and 0 or "" where a pickle has None; 'entries' is left out when there are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.scene.scene import Collective, Frame, Recorder

_MESSAGE = re.compile(r"i?(?:send|recv)\b")


class RecordedFrame(msgspec.Struct):
    """One line of the script, of an entry's stack."""

    name: str = ""
    filename: str = ""
    line: int = 0


class RecorderEntry(msgspec.Struct):
    """What we read of an entry; torch writes more, and more with every version."""

    process_group: tuple[str, ...] | str | None = None
    pg_id: int | None = None
    collective_seq_id: int | None = None
    seq_id: int | None = None
    p2p_seq_id: int | None = None
    profiling_name: str | None = None
    input_sizes: list[list[int]] | None = None
    input_dtypes: list[str] | None = None
    state: str | None = None
    retired: bool | None = None
    is_p2p: bool | None = None
    time_created_ns: int | None = None
    time_created_us: int | None = None
    time_discovered_started_ns: int | None = None
    time_discovered_completed_ns: int | None = None
    timeout_ms: int | None = None
    op_id: int | None = None
    frames: list[RecordedFrame] | None = None

    @property
    def group(self) -> str:
        if isinstance(self.process_group, str):
            return self.process_group
        if self.process_group:
            return self.process_group[0]
        if self.process_group is None and self.pg_id is not None:
            return str(self.pg_id)
        raise ValueError("not a flight recorder's document: an entry without its group")

    @property
    def is_message(self) -> bool:
        if self.is_p2p is not None:
            return self.is_p2p
        return bool(_MESSAGE.match((self.profiling_name or "").rpartition(":")[2]))

    @property
    def sequence(self) -> int:
        own = self.p2p_seq_id if self.is_message else None
        for number in (own, self.collective_seq_id, self.seq_id):
            if number is not None:
                return number
        raise ValueError("not a flight recorder's document: an entry without its number")

    @property
    def created(self) -> float:
        """Wall seconds."""
        return (self.time_created_ns or 0) / 1e9 or (self.time_created_us or 0) / 1e6

    @property
    def backend(self) -> str:
        return (self.profiling_name or "").rpartition(":")[0]

    @property
    def is_nccl(self) -> bool:
        return is_nccl(self.backend)

    @property
    def has_starts(self) -> bool:
        """torch's newer NCCL groups are recorded from outside: 'started' is when the end was seen
        (FlightRecorderDetail.hpp, retire_completed), and what runs on the GPU stays 'scheduled'."""
        return self.backend == "nccl"

    @property
    def op(self) -> str:
        return (self.profiling_name or "").rpartition(":")[2]


def is_nccl(backend: str) -> bool:
    """torch has several backends for it: 'nccl', and since 2.14 'nccl2' and 'nccl-lazy'."""
    return backend.startswith("nccl")


def of_groups_that_exist(entries: Iterable[RecorderEntry]) -> list[RecorderEntry]:
    """Without those of groups that were destroyed and made again: names and sequences start over,
    and the ring still holds the old ones. Every group of a process has a higher 'pg_id'."""
    listed = list(entries)
    newest: dict[tuple[str, str], int] = {}
    for entry in listed:
        name = entry.group, entry.backend
        newest[name] = max(entry.pg_id or 0, newest.get(name, 0))
    return [e for e in listed if (e.pg_id or 0) == newest[e.group, e.backend]]


def with_batches(listed: Iterable[RecorderEntry]) -> list[RecorderEntry]:
    """Messages that were posted together, as pipelines do, never change their state themselves:
    the entry 'coalesced' behind them has it, their numbers, and is no collective."""
    known = list(listed)
    wholes = {_batch(entry): entry for entry in known if entry.op == "coalesced"}
    ends = {_batch(entry): entry for entry in known if entry.is_message}
    batches = {(m.group, m.p2p_seq_id): wholes[key] for key, m in ends.items() if key in wholes}
    parts = {_batch(e) for e in known if not e.is_message and e.op != "coalesced"}
    return [
        _like(whole, entry)
        if entry.is_message and (whole := batches.get((entry.group, entry.p2p_seq_id)))
        else entry
        for entry in known
        # One whose parts the ring has lost says nothing.
        if entry.op != "coalesced" or _batch(entry) in parts
    ]


def _batch(entry: RecorderEntry) -> tuple[str, int | None, int | None]:
    """The last of the operations issued as one has the number of the whole."""
    return entry.group, entry.p2p_seq_id, entry.op_id


def _like(whole: RecorderEntry, part: RecorderEntry) -> RecorderEntry:
    return msgspec.structs.replace(
        part,
        state=whole.state,
        retired=whole.retired,
        time_discovered_started_ns=whole.time_discovered_started_ns,
        time_discovered_completed_ns=whole.time_discovered_completed_ns,
    )


def is_over(entry: RecorderEntry) -> bool:
    """Of a living rank: Gloo's entries are never called completed."""
    return bool(entry.retired) and (not entry.is_nccl or entry.state == "completed")


def put_away(listed: Sequence[RecorderEntry]) -> list[RecorderEntry]:
    """With the messages that are over and that torch's watchdog has not put away yet. NCCL's are
    called completed while the call has not returned; but a script that has asked for something
    else since has returned from it. (Of a collective the other members tell.)"""
    newest = max((entry.created for entry in listed), default=0.0)
    return [
        msgspec.structs.replace(entry, retired=True)
        if entry.is_message
        and entry.state == "completed"
        and entry.retired is False
        and entry.created < newest
        else entry
        for entry in listed
    ]


def timed(listed: Iterable[RecorderEntry]) -> bool:
    """Whether torch records when the GPU comes to a collective: only then is 'scheduled' more
    than 'the script asked for it'."""
    return any(
        entry.has_starts and (entry.state == "started" or entry.time_discovered_started_ns)
        for entry in listed
    )


class Group(msgspec.Struct):
    name: str = ""
    ranks: str | list[int] = ""
    """'[0, 1]'; Gloo leaves both empty"""


def members(groups: Iterable[Group]) -> dict[str, tuple[int, ...]]:
    """Group -> its ranks, in their order in the group."""
    listed = {group.name: _ranks(group.ranks) for group in groups if group.name}
    return {name: ranks for name, ranks in listed.items() if ranks}


def _ranks(told: str | list[int]) -> tuple[int, ...]:
    return tuple(told if isinstance(told, list) else map(int, re.findall(r"\d{1,9}", told)))


def collective(
    entry: RecorderEntry, *, finished: bool, qualify: bool = False, timed: bool = False
) -> Collective:
    """`qualify` distinguishes the groups of other backends from NCCL's: '0 (gloo)'."""
    backend, op, name = entry.backend, entry.op, entry.group
    return Collective(
        group=f"{name} ({backend})" if qualify and not entry.is_nccl else name,
        sequence=entry.sequence,
        op=op,
        backend=backend,
        shape=_shape(entry),
        finished=finished,
        created=entry.created,
        timeout=(entry.timeout_ms or 0) / 1e3,
        started=finished or entry.state != "scheduled" if timed and entry.has_starts else None,
        ended=(entry.time_discovered_completed_ns or 0) / 1e9 if finished else 0.0,
        frames=tuple(
            Frame(function=line.name, file=line.filename, line=line.line)
            for line in entry.frames or ()
        ),
    )


def _shape(entry: RecorderEntry) -> str:
    """'[4] Float', of several tensors '[[4], [2, 3]] Float, Half'; '' for a barrier."""
    types = ", ".join(dict.fromkeys(entry.input_dtypes or ()))
    if not entry.input_sizes:
        return ""
    sizes = entry.input_sizes[0] if len(entry.input_sizes) == 1 else entry.input_sizes
    return f"{sizes} {types}".strip()


def recorder(
    collectives: Iterable[Collective],
    *,
    members: dict[str, tuple[int, ...]],
    messages: Iterable[Collective] = (),
) -> Recorder:
    listed = _whole(collectives)
    entered: dict[str, int] = {}
    finished: dict[str, int] = {}
    lowest: dict[str, int] = {}
    for c in listed:
        entered[c.group] = max(c.sequence, entered.get(c.group, 0))
        finished[c.group] = max(c.sequence if c.finished else 0, finished.get(c.group, 0))
        lowest[c.group] = min(c.sequence, lowest.get(c.group, c.sequence))
    # What the ring has lost is over: collectives of one group end in order.
    finished = {group: max(n, lowest[group] - 1) for group, n in finished.items()}
    return Recorder(
        collectives=listed,
        entered=entered,
        finished=finished,
        members=members,
        messages=_whole(messages),
    )


def _whole(collectives: Iterable[Collective]) -> tuple[Collective, ...]:
    """Oldest first. Of operations issued as one (coalesced), only the entry of the whole is ever
    completed, and it has the number of its parts."""
    listed = sorted(collectives, key=lambda c: c.created)
    over = {(c.group, c.sequence) for c in listed if c.finished}
    begun = over | {(c.group, c.sequence) for c in listed if c.started}
    return tuple(
        msgspec.structs.replace(
            c,
            finished=(c.group, c.sequence) in over,
            started=c.started if c.started is None else (c.group, c.sequence) in begun,
        )
        if (c.group, c.sequence) in begun and not c.finished
        else c
        for c in listed
    )
