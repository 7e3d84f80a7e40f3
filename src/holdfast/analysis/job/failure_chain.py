"""Which failure a run came to its end by: the first of those that followed from each other. Pure.

A rank is killed, the job is restarted, and the restart fails because a folder already exists: the
kill is what happened, the folder only what happened then. A failure that the job got over, past
the furthest step it had reached before, has nothing to do with the next one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from holdfast.analysis.job.journal_records import (
    JournalRecord,
    StartRecord,
    StepsRecord,
    VerdictRecord,
)


class FailureChain(NamedTuple):
    root: VerdictRecord | None = None
    """None when nothing failed, or the run was only told to stop"""
    later: tuple[VerdictRecord, ...] = ()
    """how the attempts after it failed, oldest first"""
    overcome: tuple[VerdictRecord, ...] = ()
    """failures before it: the job made progress after them"""
    stop: VerdictRecord | None = None
    """the run was told to stop from outside; with `ranks` where a stall had been named by then"""


def find(records: Sequence[JournalRecord]) -> FailureChain:
    failures = _one_an_attempt(r for r in records if isinstance(r, VerdictRecord))
    if not failures:
        return FailureChain()
    last = failures[-1]
    if last.stopped_by:
        return FailureChain(overcome=tuple(failures[:-1]), stop=last)
    reached = positions(records)
    begin = len(failures) - 1
    while begin and not _got_past(failures[begin - 1], last, reached):
        begin -= 1
    return FailureChain(
        root=failures[begin],
        later=tuple(failures[begin + 1 :]),
        overcome=tuple(failures[:begin]),
    )


def positions(records: Iterable[JournalRecord]) -> dict[int, int]:
    """attempt -> the furthest step of the job it came to, as far as known."""
    began: dict[int, int] = {}
    taken: dict[int, int] = {}
    for record in records:
        if isinstance(record, StartRecord):
            reached, repeated = record.reached, record.repeated
            if isinstance(reached, int) and isinstance(repeated, int):
                began[record.attempt] = max(0, reached - repeated)
        elif isinstance(record, StepsRecord):
            taken[record.attempt] = max(taken.get(record.attempt, 0), record.steps)
    return {attempt: began.get(attempt, 0) + steps for attempt, steps in taken.items()}


def _one_an_attempt(verdicts: Iterable[VerdictRecord]) -> list[VerdictRecord]:
    """The last one names it, unless that is only the signal that ended the run meanwhile."""
    found: dict[int, VerdictRecord] = {}
    for verdict in verdicts:
        before = found.get(verdict.attempt)
        if before is None or before.stopped_by or not verdict.stopped_by:
            found[verdict.attempt] = verdict
    return [found[attempt] for attempt in sorted(found)]


def _got_past(failure: VerdictRecord, last: VerdictRecord, reached: dict[int, int]) -> bool:
    before = max((step for n, step in reached.items() if n <= failure.attempt), default=0)
    after = (step for n, step in reached.items() if failure.attempt < n <= last.attempt)
    return max(after, default=0) > before
