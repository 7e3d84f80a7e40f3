"""The journal of a `holdfast run`, read once the run is over: who was who, what was said. Pure.

Of several attempts the one is explained by which the run came to its end (failure_chain): the first
of those that followed from each other. A run that failed and continued was restarted for a reason,
and that reason is what its user wants to know. But where no start can succeed until something is
put right (a damaged checkpoint), that comes first.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence

import msgspec

from holdfast.analysis.job import failure_chain
from holdfast.analysis.job.journal_records import (
    AttemptRecord,
    EndRecord,
    EvidenceRecord,
    JournalRecord,
    JudgementRecord,
    LaunchRecord,
    RankRecord,
    RuleRecord,
    VerdictRecord,
    decode_lines,
    kind_of,
)
from holdfast.analysis.job.phrases import stop_name
from holdfast.analysis.logs.wreckage import Exit, LiveVerdict, LogLine
from holdfast.catalogue import traits

LARGEST = 64 << 20
ENDED_WELL = "the run was restarted after it, and ended well"
WENT_ON = "the run was restarted after it"

NumberedRecords = list[tuple[int, JournalRecord]]
"""each with the number of its line"""


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
    told: tuple[LiveVerdict, ...]
    evidence: str
    """'evidence-3': the folder that the last sentence rests on; '' when it names none"""
    worlds: dict[str, tuple[int, ...]]
    """name -> ranks by their numbers in it, where they had formed several"""
    finished: bool
    """this very attempt ended well: no end is to be explained"""
    ended: bool = False
    """its launcher wrote the end of the run"""
    newest_at: float = 0.0
    """when its last line was written"""
    last: LogLine | None = None
    """its last line, where the launcher wrote no end and not all ranks ended well; else None"""
    rules: tuple[tuple[int, RuleRecord], ...] = ()
    """what it said of the user's own rules, with the number of the line"""


def read(text: bytes, source: str, *, attempt: int | None = None) -> Story:
    """Never raises: a journal cut in the middle of a line, as a crash leaves it, is read as far
    as it goes. `attempt`: as another node's journal of the same run tells."""
    numbered = list(decode_lines(text))
    records = [record for _, record in numbered]
    if attempt is None:
        attempt = _attempt_to_explain(records)
    mine = [(number, r) for number, r in numbered if _is_of(r, attempt)]
    ranks = [r for r in records if isinstance(r, RankRecord)]
    worlds = [r.world for r in records if isinstance(r, LaunchRecord) and r.world]
    hosts = [h for _, r in mine if isinstance(r, JudgementRecord) for h in r.hosts]
    ended = [r for _, r in mine if isinstance(r, EndRecord)]
    judged = any(isinstance(r, VerdictRecord) for _, r in mine)
    finished = bool(ended) and ended[-1].exit_code == 0 and not judged
    told = tuple(_told(mine, source, _around(records, attempt)))
    if (
        finished
    ):  # what ranks reported of wrong numbers is worth explaining, also of a job that ended
        told = tuple(one for one in told if traits(one.slug).is_news)
    return Story(
        attempt=attempt,
        world_size=worlds[-1] if worlds else None,
        pids=_pids(ranks, attempt),
        newest=_pids(ranks, max((r.attempt for r in ranks), default=attempt)),
        host=hosts[-1] if hosts else "",
        exits=tuple(_exits(mine, source)),
        told=told,
        evidence=_evidence(mine),
        worlds=_worlds(mine),
        finished=finished,
        ended=any(isinstance(r, EndRecord) for r in records),
        newest_at=max((r.t for r in records), default=0.0),
        last=_last(numbered, source),
        rules=tuple((number, r) for number, r in mine if isinstance(r, RuleRecord)),
    )


def _last(numbered: NumberedRecords, source: str) -> LogLine | None:
    records = [record for _, record in numbered]
    launched = [r for r in records if isinstance(r, LaunchRecord)]
    if not launched or any(isinstance(r, EndRecord) for r in records):
        return None
    newest = max((r.attempt for r in records if isinstance(r, RankRecord)), default=0)
    well = [
        r for r in records
        if isinstance(r, RankRecord) and r.attempt == newest and r.what == "exited" and r.code == 0
    ]  # fmt: skip
    if launched[-1].world and len(well) >= launched[-1].world:
        return None
    number, record = numbered[-1]
    return _line(record, source, number, kind_of(record), None)


def _is_of(record: JournalRecord, attempt: int) -> bool:
    return not isinstance(record, AttemptRecord) or record.attempt == attempt


def _pids(ranks: Iterable[RankRecord], attempt: int) -> dict[int, int]:
    return {r.rank: r.pid for r in ranks if r.attempt == attempt and r.pid}


def _attempt_to_explain(records: Sequence[JournalRecord]) -> int:
    attempts = [r for r in records if isinstance(r, AttemptRecord)]
    judged = [r.attempt for r in attempts if isinstance(r, VerdictRecord)]
    # An end without a verdict is still the end of its own attempt.
    failed = [r.attempt for r in attempts if isinstance(r, EndRecord) and r.exit_code]
    found = failure_chain.find(records)
    blocked = [one for one in found.later[-1:] if traits(one.slug).blocks_start]
    cause = blocked[0] if blocked else found.root or found.stop
    if cause and max(failed, default=0) <= max(judged):
        return cause.attempt
    return max(failed or [r.attempt for r in attempts], default=0)


def _around(records: Sequence[JournalRecord], attempt: int) -> str:
    """What became of the run after the attempt that is explained, or how it came to it."""
    root = failure_chain.find(records).root
    if root is not None and root.attempt < attempt:
        return f"it was the restart after {root.slug}: {root.reason}"
    return _afterwards(records, attempt)


def _afterwards(records: Sequence[JournalRecord], attempt: int) -> str:
    attempts = [r for r in records if isinstance(r, AttemptRecord)]
    ended = [r for r in attempts if isinstance(r, EndRecord)]
    if not any(r.attempt > attempt for r in attempts):
        return ""
    if ended and ended[-1].exit_code == 0:
        return ENDED_WELL
    found = failure_chain.find(records)
    other = [one for one in found.later if found.root and one.slug != found.root.slug]
    failed = f", and failed with {other[-1].slug}: {other[-1].reason}" if other else ""
    return f"{WENT_ON}{failed}"


def _evidence(records: NumberedRecords) -> str:
    named = [
        r.folder if isinstance(r, EvidenceRecord) else r.evidence
        for _, r in records
        if isinstance(r, (EvidenceRecord, JudgementRecord))
    ]
    folders = [os.path.basename(name) for name in named if name]
    return folders[-1] if folders else ""


def _worlds(records: NumberedRecords) -> dict[str, tuple[int, ...]]:
    told = [r.worlds for _, r in records if isinstance(r, EvidenceRecord)]
    return told[-1] if told else {}


def _exits(records: NumberedRecords, source: str) -> Iterator[Exit]:
    for number, record in records:
        if not isinstance(record, RankRecord) or not isinstance(record.code, int):
            continue
        what = f"rank {record.rank} {record.what} ({record.code})"
        yield Exit(
            code=record.code,
            rank=record.rank,
            pid=record.pid or None,
            teller="holdfast",
            line=_line(record, source, number, what, record.rank),
        )


def _told(records: NumberedRecords, source: str, afterwards: str) -> Iterator[LiveVerdict]:
    for number, record in records:
        if not isinstance(record, JudgementRecord):
            continue
        stopped = isinstance(record, VerdictRecord) and bool(record.stopped_by and record.ranks)
        said = f"holdfast run said so: {kind_of(record)}[{record.code}] {record.slug}"
        yield LiveVerdict(
            code=record.code,
            slug=record.slug,
            ranks=record.ranks,
            victims=record.victims,
            hosts=record.hosts,
            reason=_stopped_in(record) if stopped else record.reason,
            fix=record.fix,
            verdict=isinstance(record, VerdictRecord),
            stopped=stopped,
            likely=isinstance(record, VerdictRecord) and record.likely,
            afterwards=afterwards,
            line=_line(record, source, number, said, None),
        )


def _stopped_in(record: JudgementRecord) -> str:
    assert isinstance(record, VerdictRecord)
    return f"the run was stopped by {stop_name(record.stopped_by)} during a stall: {record.reason}"


def _line(record: JournalRecord, source: str, number: int, text: str, rank: int | None) -> LogLine:
    return LogLine(text=text, source=source, number=number, rank=rank, at=record.t or None)
