"""Read a flight-recorder dump, a pickle or JSON, of any torch since 2.2: bytes -> Recorder.

The pickle holds nothing but lists, dicts, tuples, texts and numbers, so a class in it is refused.
That keeps it from running anything; a small file may still ask for much memory or time (a memo
index of billions, a dict key of nested tuples). So strangers' dumps are read in a process of
limited means: `wreckage.dumps` does it. It is C that reads, for a big job leaves a gigabyte.

Of each group only the entries that can matter are kept: the last ones, and those around the last
that is over. The stack is kept for the few where the script was.
"""

from __future__ import annotations

import io
import pickle
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NoReturn

import msgspec

from holdfast.analysis.collectives import entries
from holdfast.analysis.collectives.entries import Group, RecorderEntry
from holdfast.analysis.collectives.groups import is_default
from holdfast.analysis.scene.scene import Collective, Recorder

FORMAT = "2.10"
"""what torch calls the newest format that this was written for (FlightRecorder.hpp, version_val)"""
KEEP = 2048
"""entries of each group that are kept by default: torch records 2,000 in all"""
_BEFORE = 16
"""kept from before the last one that is over, to see what the group usually does"""
_STACKS = 2
"""of the last entries, and of the first that are open"""
_BROKEN = (
    *(pickle.UnpicklingError, msgspec.MsgspecError, UnicodeError, EOFError, RecursionError),
    *(AttributeError, IndexError, KeyError, OverflowError, TypeError, ValueError, ImportError),
)
"""what readers raise on bytes that are no dump"""
_PARTS = frozenset({"entries", "pg_config", "pg_status", "comm_lib_version", "nccl_comm_state"})
"""names at the top of a document"""


def read(data: bytes, *, keep: int = KEEP) -> Recorder:
    """Raises ValueError when it is no recorder's dump."""
    try:
        whole = _unpickled(data) if data[:1] == b"\x80" else msgspec.json.decode(data)
        return _recorder(_documents(whole), keep)
    except _BROKEN as problem:
        why = f"{type(problem).__name__}: {problem}" if str(problem) else type(problem).__name__
        raise ValueError(f"not a flight recorder's dump: {why}") from None


class _Unpickler(pickle.Unpickler):
    def find_class(self, module: str, name: str, /) -> NoReturn:
        raise pickle.UnpicklingError(f"it asks for {module}.{name}, which no recorder writes")


def _unpickled(data: bytes) -> Any:
    # Through a buffered reader, for the reader in C asks a bare BytesIO for every single opcode.
    buffered = io.BufferedReader(io.BytesIO(data), max(1, len(data)))
    return _Unpickler(buffered).load()


def _documents(whole: Any) -> list[dict[str, Any]]:
    """One; several of a CUDA build, asked by us; torch 2.2 wrote the bare list of entries."""
    parts = whole if isinstance(whole, list) else [whole]
    if not all(isinstance(part, dict) for part in parts):
        raise ValueError("neither a document nor a list of entries")
    if parts and all(_PARTS & part.keys() for part in parts):
        return parts
    if parts is whole:
        return [{"entries": parts}]
    raise ValueError("it has no entries")


def _recorder(documents: list[dict[str, Any]], keep: int) -> Recorder:
    raw = [
        entry
        for number, part in enumerate(documents)
        for entry in part.get("entries") or ()
        # Asked for the third, a torch that has two recorders sends the second again.
        if number < 2 or entries.is_nccl(entry.get("profiling_name") or "")
    ]
    if not raw:
        return _from_status(documents[0])
    read_entries = msgspec.convert(list(_chosen(raw, keep)), list[RecorderEntry], strict=False)
    existing = entries.with_batches(entries.of_groups_that_exist(read_entries))
    chosen = entries.put_away(existing)
    is_over = _over(chosen)
    qualify = len(documents) > 1
    timed = entries.timed(chosen)
    listed = [
        (e, entries.collective(e, finished=is_over(e), qualify=qualify, timed=timed))
        for e in chosen
    ]
    if not all(_is_legible(c) for _, c in listed):
        raise ValueError("it has control characters in its names")
    return entries.recorder(
        (c for e, c in listed if not e.is_message),
        members=_members(documents) or _of_the_only_group(documents[0], listed),
        messages=(c for e, c in listed if e.is_message),
    )


def _members(documents: Iterable[dict[str, Any]]) -> dict[str, tuple[int, ...]]:
    told = [row for part in documents for row in (part.get("pg_config") or {}).values()]
    return entries.members(msgspec.convert(told, list[Group], strict=False))


def _of_the_only_group(
    document: dict[str, Any], listed: Iterable[tuple[RecorderEntry, Collective]]
) -> dict[str, tuple[int, ...]]:
    """Gloo's groups share one nameless row, which holds the ranks of the one made last. It is the
    default one's where no other was ever used."""
    used = {c.group for _, c in listed}
    row = (document.get("pg_config") or {}).get("")
    if row is None or len(used) != 1 or not is_default(next(iter(used))):
        return {}
    group = msgspec.convert(row, Group, strict=False)
    return entries.members([msgspec.structs.replace(group, name=used.pop())])


class _Status(msgspec.Struct):
    last_enqueued_collective: int = 0
    last_completed_collective: int = 0


def _from_status(document: dict[str, Any]) -> Recorder:
    """Recording was off, or nothing was done yet: the counters still describe the default group.
    They count messages too, which the default group seldom has."""
    told = document.get("pg_status") or {}
    status = msgspec.convert(told.get("0", {}), _Status, strict=False)
    begun = status.last_enqueued_collective > 0
    return Recorder(
        collectives=(),
        entered={"0": status.last_enqueued_collective} if begun else {},
        finished={"0": max(0, status.last_completed_collective)} if begun else {},
        members=_members([document]),
    )


def _over(chosen: Iterable[RecorderEntry]) -> Callable[[RecorderEntry], bool]:
    """Which entries are over. 'retired' means that it is not watched any more: of one that is
    retired and not completed the time ran out. Only, Gloo's are never called completed. torch 2.14
    and later record other backends from outside, and retire what they never hear of again when it
    is issued (FlightRecorderHook.cpp, onPost): of these the last may not be over."""
    listed = list(chosen)
    backends_with_states = {
        entry.backend for entry in listed if entry.state in ("started", "completed")
    }
    last: dict[tuple[str, str, bool], int] = {}
    for entry in listed:
        lane = entry.group, entry.backend, entry.is_message
        last[lane] = max(entry.sequence, last.get(lane, 0))

    def is_over(entry: RecorderEntry) -> bool:
        completed = entry.state == "completed"
        if entry.retired is None or completed:
            return completed and entry.retired is not False
        if entry.is_nccl or entry.backend in backends_with_states:
            return False
        lane = entry.group, entry.backend, entry.is_message
        return entry.retired and (entry.backend in ("gloo", "") or entry.sequence < last[lane])

    return is_over


def _is_legible(c: Collective) -> bool:
    """Its texts are shown on terminals, which obey control characters."""
    texts = (c.group, c.op, c.backend, c.shape, *(f.function for f in c.frames))
    return all(text.isprintable() for text in (*texts, *(f.file for f in c.frames)))


# --- which entries matter ------------------------------------------------------------------------


def _chosen(raw: list[Any], keep: int) -> Iterator[dict[str, Any]]:
    lanes: dict[Any, list[dict[str, Any]]] = {}
    for entry in raw:
        group = entry.get("process_group")
        lane = group[0] if group else entry.get("pg_id")
        lanes.setdefault((lane, entry.get("is_p2p")), []).append(entry)
    for lane in lanes.values():
        last = len(lane)
        over = next((i for i in range(last - 1, -1, -1) if lane[i].get("retired")), -1)
        wanted = {
            *range(max(0, last - keep), last),
            *range(max(0, over - _BEFORE), min(last, over + 1 + keep)),
        }
        stacks = {*range(last - _STACKS, last), *range(over, over + 1 + _STACKS)}
        for index in sorted(wanted):
            if index in stacks:
                yield lane[index]
            else:
                yield {name: value for name, value in lane[index].items() if name != "frames"}
