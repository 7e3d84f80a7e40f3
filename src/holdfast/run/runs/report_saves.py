"""What the saves of a run came to, and what its restarts repeated, from its journal. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from statistics import median

from holdfast.analysis.checkpoints import save_interval
from holdfast.analysis.job.journal_records import (
    ActionRecord,
    JournalRecord,
    ResumeRecord,
    SavedRecord,
    SaveFailedRecord,
    StartRecord,
    StepsRecord,
)
from holdfast.text import elapsed

ENOUGH_SAVES = 3
"""fewer say nothing about how often"""
SHORT_RUN = 60.0
"""seconds: nor does a run that was over so soon"""
SAVE_AT_THE_END = "none was due in this time; call ckpt.save() at the end of the script"
LONGEST = 1e6
"""seconds that anything here may take: a journal may be damaged"""


def lines(records: Sequence[JournalRecord]) -> list[str]:
    """For the report at the end; nothing for a run that reported none."""
    return [told for told in (_saves(records), *_restarts(records), _cadence(records)) if told]


def _saves(records: Sequence[JournalRecord]) -> str:
    saved = [r for r in records if isinstance(r, SavedRecord)]
    failed = sum(isinstance(r, SaveFailedRecord) for r in records)
    again = f", {failed} failed" if failed else ""
    if not saved and failed:
        return f"no checkpoint was saved{again}"
    if not saved:  # a job that resumes means to save
        resumes = any(isinstance(r, ResumeRecord) for r in records)
        return f"no checkpoint was saved: {SAVE_AT_THE_END}" if resumes else ""
    paused = sum(_sane(record.stall for record in saved))
    many = f"{len(saved)} checkpoint{'s' * (len(saved) > 1)} saved{again}"
    return (
        f"{many}, the last at step {saved[-1].step} in {saved[-1].path}; saving paused training "
        f"for {elapsed(paused)}"
    )


def _restarts(records: Sequence[JournalRecord]) -> list[str]:
    """As far as each attempt came: it may have failed before it was where it had been."""
    taken: dict[int, int] = {}
    for record in records:
        if isinstance(record, StepsRecord):
            taken[record.attempt] = max(taken.get(record.attempt, 0), record.steps)
    found = {
        r.attempt: (min(r.repeated, taken.get(r.attempt, r.repeated)), r.reached)
        for r in records
        if isinstance(r, StartRecord) and isinstance(r.repeated, int)
    }
    return [
        f"restart {attempt}: {repeated} of {reached} steps done again"
        for attempt, (repeated, reached) in found.items()
    ]


def _cadence(records: Sequence[JournalRecord]) -> str:
    """The loss to be expected at this pace of saves, and a better one where it is far off."""
    saved = [r for r in records if isinstance(r, SavedRecord)]
    uptime = records[-1].t - records[0].t if records else 0.0
    if len(saved) < ENOUGH_SAVES or uptime < SHORT_RUN:
        return ""
    # The restart is between two attempts: that is no interval.
    apart = [
        _when(later) - _when(earlier)
        for earlier, later in pairwise(saved)
        if earlier.attempt == later.attempt and _when(later) > _when(earlier)
    ]
    stalls, writing = _sane(r.stall for r in saved), _sane(r.seconds for r in saved)
    if not apart or not stalls or not writing:
        return ""
    failures = sum(isinstance(r, ActionRecord) and r.action == "restart" for r in records)
    mtbf = save_interval.mtbf(uptime=uptime, failures=failures)
    advice = save_interval.advice(median(apart), median(stalls), mtbf, writing=median(writing))
    return advice.sentence


def _when(record: SavedRecord) -> float:
    """By the rank's own account: the launcher hears of several at once."""
    return record.t if record.told_at is None else record.told_at


def _sane(values: Iterable[float]) -> list[float]:
    return [value for value in values if 0 <= value < LONGEST]
