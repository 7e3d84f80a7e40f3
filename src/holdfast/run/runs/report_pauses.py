"""The longest pause a job came back from, and the limits that leave room for it. Pure.

A limit far above it makes a real hang wait for nothing; one just above it ends a healthy job.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

from holdfast.analysis.job.journal_records import (
    EndRecord,
    JournalRecord,
    JudgementRecord,
    LaunchRecord,
)
from holdfast.text import exact_duration

TIMES = 2
"""a limit is suggested at this many times the longest pause, in whole minutes"""
SHORTEST_LIMIT = 60.0
SHORTEST_PAUSE = 5.0
"""seconds: shorter ones suggest nothing"""


def longest(records: Sequence[JournalRecord]) -> float:
    told = (r.longest_pause for r in records if isinstance(r, (EndRecord, JudgementRecord)))
    return max(told, default=0.0)


def suggested(pause: float) -> float:
    """Seconds, whole minutes; 0 when nothing was seen that could suggest a limit."""
    if pause < SHORTEST_PAUSE:
        return 0.0
    return max(SHORTEST_LIMIT, math.ceil(TIMES * pause / 60) * 60.0)


def lines(records: Sequence[JournalRecord]) -> Iterator[str]:
    pause = longest(records)
    limit = suggested(pause)
    launch = next((r for r in records if isinstance(r, LaunchRecord)), LaunchRecord())
    end = next((r for r in reversed(records) if isinstance(r, EndRecord)), None)
    if not limit or launch.patience:
        return
    where = f", {end.pause_at}" if end and end.pause_at else ""
    timeout = end.group_timeout if end else 0.0
    told = f"longest pause the job came back from: {exact_duration(round(pause))}{where}"
    if timeout and limit > timeout:
        yield (
            f"{told}; the group's timeout of {exact_duration(timeout)} leaves little room: "
            f"`init_process_group(timeout=timedelta(seconds={limit:g}))`"
        )
    elif limit < timeout:
        yield (
            f"{told}; `--patience {limit:g}` would end a real hang sooner than the group's timeout "
            f"of {exact_duration(timeout)}"
        )
    else:
        yield told
