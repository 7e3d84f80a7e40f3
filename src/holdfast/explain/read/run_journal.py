"""The journal of a `holdfast run`, read once the run is over: who was who, what was said. Pure.

Of several attempts the last one that failed is explained. A run that failed and went on was
restarted for a reason, and that reason is what its user wants to know.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import Any

import msgspec

from holdfast.analysis.logs.wreckage import Exit, Line, Told

LARGEST = 64 << 20
ENDED_WELL = "the run was restarted after it, and ended well"
WENT_ON = "the run was restarted after it"

Record = dict[str, Any]
Records = list[tuple[int, Record]]
"""(number of its line, what it says)"""


class Story(msgspec.Struct, frozen=True, kw_only=True):
    """What the journal says of the attempt that is explained."""

    attempt: int
    world_size: int | None
    pids: dict[int, int]
    """rank -> pid"""
    newest: dict[int, int]
    """rank -> pid in the attempt that was started last: those that live, if any do"""
    host: str
    exits: tuple[Exit, ...]
    told: tuple[Told, ...]
    evidence: str
    """'evidence-3': the folder that the last sentence rests on; '' when it names none"""
    finished: bool
    """this very attempt ended well: nothing is to be explained"""


def read(text: bytes, source: str) -> Story:
    """Never raises: a journal cut in the middle of a line, as a crash leaves it, is read as far
    as it goes."""
    records = list(_records(text))
    attempt = _attempt_to_explain(records)
    mine = [(number, r) for number, r in records if r.get("attempt", attempt) == attempt]
    worlds = [r["world"] for _, r in mine if isinstance(r.get("world"), int)]
    ranks = _of_kind(records, "rank")
    newest = max(_attempts(ranks), default=attempt)
    hosts = [h for _, r in mine for h in _listed(r.get("hosts")) if isinstance(h, str)]
    ended = _of_kind(mine, "end")
    finished = bool(ended) and ended[-1].get("exit_code") == 0 and not _of_kind(mine, "verdict")
    return Story(
        attempt=attempt,
        world_size=worlds[-1] if worlds else None,
        pids=_pids(ranks, attempt),
        newest=_pids(ranks, newest),
        host=hosts[-1] if hosts else "",
        exits=tuple(_exits(mine, source)),
        told=() if finished else tuple(_told(mine, source, _afterwards(records, attempt))),
        evidence=_evidence(mine),
        finished=finished,
    )


def _records(text: bytes) -> Iterator[tuple[int, Record]]:
    for number, line in enumerate(text.splitlines(), start=1):
        try:
            record = msgspec.json.decode(line)
        except (msgspec.MsgspecError, UnicodeError, RecursionError):
            continue
        if isinstance(record, dict):
            yield number, record


def _of_kind(records: Records, kind: str) -> list[Record]:
    return [r for _, r in records if r.get("kind") == kind]


def _attempts(records: Iterable[Record]) -> list[int]:
    return [r["attempt"] for r in records if isinstance(r.get("attempt"), int)]


def _pids(ranks: Iterable[Record], attempt: int) -> dict[int, int]:
    return {
        rank: pid
        for r in ranks
        if r.get("attempt", attempt) == attempt
        and isinstance(rank := r.get("rank"), int)
        and isinstance(pid := r.get("pid"), int)
    }


def _attempt_to_explain(records: Records) -> int:
    failed = _attempts(_of_kind(records, "verdict"))
    # An end that nobody had a word for is still the end of its own attempt.
    failed += _attempts(r for r in _of_kind(records, "end") if r.get("exit_code") != 0)
    return max(failed) if failed else max(_attempts(r for _, r in records), default=0)


def _afterwards(records: Records, attempt: int) -> str:
    """What became of the run after the attempt that is explained."""
    later = any(number > attempt for number in _attempts(r for _, r in records))
    ended = _of_kind(records, "end")
    if later and ended and ended[-1].get("exit_code") == 0:
        return ENDED_WELL
    return WENT_ON if later else ""


def _evidence(records: Records) -> str:
    named = [r.get("evidence") or r.get("folder") for _, r in records]
    folders = [os.path.basename(name) for name in named if isinstance(name, str)]
    return folders[-1] if folders else ""


def _exits(records: Records, source: str) -> Iterator[Exit]:
    for number, record in records:
        code, rank = record.get("code"), record.get("rank")
        if record.get("kind") != "rank" or not isinstance(code, int) or not isinstance(rank, int):
            continue
        what = f"rank {rank} {record.get('what', 'ended')} ({code})"
        pid = record.get("pid")
        yield Exit(
            code=code,
            rank=rank,
            pid=pid if isinstance(pid, int) else None,
            teller="holdfast",
            line=_line(record, source, number, what, rank),
        )


def _told(records: Records, source: str, afterwards: str) -> Iterator[Told]:
    for number, record in records:
        kind, slug = record.get("kind"), record.get("slug")
        if kind not in ("notice", "verdict") or not slug:
            continue
        code = str(record.get("code", ""))
        yield Told(
            code=code,
            slug=str(slug),
            ranks=_numbers(record.get("ranks")),
            victims=_numbers(record.get("victims")),
            reason=str(record.get("reason", "")),
            fix=str(record.get("fix", "")),
            verdict=kind == "verdict",
            afterwards=afterwards,
            line=_line(
                record, source, number, f"holdfast run said so: {kind}[{code}] {slug}", None
            ),
        )


def _line(record: Record, source: str, number: int, text: str, rank: int | None) -> Line:
    at = record.get("t")
    return Line(
        text=text,
        source=source,
        number=number,
        rank=rank,
        at=float(at) if isinstance(at, (int, float)) else None,
    )


def _listed(value: object) -> list[object]:
    return value if isinstance(value, list) else []


def _numbers(value: object) -> tuple[int, ...]:
    return tuple(n for n in _listed(value) if isinstance(n, int))
