"""What the saves of a run came to, and what its restarts repeated, from its journal. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from statistics import median
from typing import Any

from holdfast.analysis.checkpoints import save_interval
from holdfast.text import duration

Record = dict[str, Any]

ENOUGH = 3
"""saves: fewer tell nothing about how often"""
SHORT = 60.0
"""seconds: nor does a run that was over so soon"""
LONGEST = 1e6
"""seconds that anything here may take"""


def lines(records: Sequence[Record]) -> list[str]:
    """For the report at the end; nothing of a run that told nothing."""
    return [told for told in (_saves(records), *_restarts(records), _cadence(records)) if told]


def _saves(records: Sequence[Record]) -> str:
    saved = [r for r in records if r["kind"] == "saved" and isinstance(r.get("step"), int)]
    failed = sum(r["kind"] == "save-failed" for r in records)
    again = f", {failed} failed" if failed else ""
    if not saved:
        return f"no checkpoint was saved{again}" if failed else ""
    stalls = list(_numbers(saved, "stall"))
    cost = f"; the training stood still {_seconds(sum(stalls))} for them" if stalls else ""
    many = f"{len(saved)} checkpoint{'s' * (len(saved) > 1)} saved{again}"
    return f"{many}, the last at step {saved[-1]['step']} in {saved[-1].get('path', '?')}{cost}"


def _restarts(records: Sequence[Record]) -> list[str]:
    found = {
        r.get("attempt"): r
        for r in records
        if r["kind"] in ("resume", "first-step") and isinstance(r.get("repeated"), int)
    }
    return [
        f"restart {attempt}: {r['repeated']} of {r.get('reached', '?')} steps done again"
        for attempt, r in found.items()
    ]


def _cadence(records: Sequence[Record]) -> str:
    """The loss to be expected at this pace of saves, and a better one where it is far off."""
    saved = [r for r in records if r["kind"] == "saved"]
    uptime = records[-1]["t"] - records[0]["t"] if records else 0.0
    if len(saved) < ENOUGH or uptime < SHORT:
        return ""
    # Between two attempts lies the restart: that is no interval.
    apart = [
        _when(later) - _when(earlier)
        for earlier, later in pairwise(saved)
        if earlier.get("attempt") == later.get("attempt") and _when(later) > _when(earlier)
    ]
    stalls, writing = list(_numbers(saved, "stall")), list(_numbers(saved, "seconds"))
    if not apart or not stalls or not writing:
        return ""
    failures = sum(r["kind"] == "action" and r.get("action") == "restart" for r in records)
    mtbf = save_interval.mtbf(uptime=uptime, failures=failures)
    advice = save_interval.advice(median(apart), median(stalls), mtbf, writing=median(writing))
    return advice.sentence


def _when(record: Record) -> float:
    """By the rank's own account: the launcher hears of several at once."""
    told = record.get("told_at")
    return float(told if isinstance(told, (int, float)) else record["t"])


def _numbers(records: Sequence[Record], name: str) -> Iterator[float]:
    for record in records:
        value = record.get(name)
        # A journal may be damaged, or from another version.
        if isinstance(value, (int, float)) and 0 <= value < LONGEST:
            yield float(value)


def _seconds(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)
