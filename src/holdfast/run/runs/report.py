"""What a run came to, from its journal's records alone. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from holdfast.run.runs import report_saves
from holdfast.text import duration, numbers

Record = dict[str, Any]

HEADROOM = 3
"""a group's timeout should be this many times the longest wait a job came back from"""
SHORTEST_TIMEOUT = 60.0
WORTH_TELLING = 5.0
"""seconds: shorter waits suggest nothing about a timeout"""
CAUSES_SHOWN = 5


class Report(NamedTuple):
    seconds: float
    steps: int
    attempts: int
    restarts: int
    lost: float
    """seconds from the last step before a restart to the first one after it, added up"""
    longest_pause: float
    suggested_timeout: float
    """seconds; 0 when no wait was long enough to suggest one"""
    group_timeout: float
    """the one in force; 0 when unknown"""
    exit_code: int | None
    reason: str
    """of the end itself"""
    causes: tuple[Record, ...]
    """the verdicts, oldest first; the last is the root cause of the end"""
    kept: tuple[str, ...] = ()
    """sentences about saves, and steps done twice"""


def summarise(records: Sequence[Record]) -> Report:
    end: Record = next((record for record in reversed(records) if record["kind"] == "end"), {})
    longest = max((_seconds(record, "longest_pause") for record in records), default=0.0)
    return Report(
        seconds=max(0.0, records[-1]["t"] - records[0]["t"]) if records else 0.0,
        steps=steps_in(records),
        attempts=len({_whole(record, "attempt") for record in records}),
        restarts=restarts_in(records),
        lost=lost_in(records),
        longest_pause=longest,
        suggested_timeout=suggested_timeout(longest),
        group_timeout=max((_seconds(record, "group_timeout") for record in records), default=0.0),
        exit_code=_whole(end, "exit_code") if "exit_code" in end else None,
        reason=str(end.get("reason", "")),
        causes=tuple(record for record in records if record["kind"] == "verdict"),
        kept=tuple(report_saves.lines(records)),
    )


def steps_in(records: Iterable[Record]) -> int:
    """Steps taken, in all attempts together: what a restart repeats counts again."""
    most: dict[int, int] = {}
    for record in records:
        attempt = _whole(record, "attempt")
        most[attempt] = max(most.get(attempt, 0), _whole(record, "steps"))
    return sum(most.values())


def restarts_in(records: Iterable[Record]) -> int:
    return sum(_is_restart(record) for record in records)


def lost_in(records: Sequence[Record]) -> float:
    """Each restart costs from the last step before it to the first step after it."""
    total = 0.0
    counted_until = -math.inf  # two restarts without a step between them are one gap
    for place, record in enumerate(records):
        if not _is_restart(record):
            continue
        attempt = _whole(record, "attempt")
        later = records[place + 1 :]
        back = next(
            (r for r in later if _whole(r, "attempt") > attempt and _whole(r, "steps") > 0),
            records[-1],
        )
        began = max(record["t"] - _seconds(record, "idle"), counted_until)
        total += max(0.0, back["t"] - began)
        counted_until = max(counted_until, back["t"])
    return total


def suggested_timeout(longest_pause: float) -> float:
    """Whole minutes; 0 when nothing was seen that could suggest one."""
    if longest_pause < WORTH_TELLING:
        return 0.0
    return max(SHORTEST_TIMEOUT, math.ceil(HEADROOM * longest_pause / 60) * 60.0)


def lines(report: Report) -> list[str]:
    """The end of a run on screen: figures first, the root cause last, where it stays in sight."""
    told = [_figures(report)]
    if report.lost:
        told.append(f"{_precise(report.lost)} lost between the last step before a restart and "
                    "the first after it")  # fmt: skip
    told += report.kept
    if report.suggested_timeout:
        told.append(_timeout(report))
    causes = report.causes[-CAUSES_SHOWN:]
    if len(report.causes) > len(causes):
        told.append(f"{len(report.causes) - len(causes)} earlier verdicts are in the journal")
    if report.exit_code in (0, None):
        return told + [f"it had been held up: {_cause(cause)}" for cause in causes]
    told += [f"earlier: {_cause(cause)}" for cause in causes[:-1]]
    if report.reason and not (causes and causes[-1].get("reason") == report.reason):
        told.append(report.reason)
    if causes and causes[-1].get("fix"):
        told.append(f"help: {causes[-1]['fix']}")
    return told + [f"root cause: {_cause(cause)}" for cause in causes[-1:]]


def _figures(report: Report) -> str:
    steps = f"{report.steps} steps" if report.steps else "steps unknown (no optimizer call seen)"
    again = f"{report.restarts} restart{'s' if report.restarts != 1 else ''}"
    head = {0: "done", None: "no end was written"}.get(
        report.exit_code, f"ended with exit code {report.exit_code}"
    )
    return f"{head}: {steps}, {again}, {duration(report.seconds)}"


def _timeout(report: Report) -> str:
    now = f" (it is {report.group_timeout:g} s)" if report.group_timeout else ""
    return (
        f"longest wait that came back by itself: {_precise(report.longest_pause)}; that suggests "
        f"a group timeout of {report.suggested_timeout:g} s{now}: "
        f"init_process_group(timeout=timedelta(seconds={report.suggested_timeout:g}))"
    )


def _cause(cause: Record) -> str:
    named = cause.get("ranks")
    ranks = [rank for rank in named if isinstance(rank, int)] if isinstance(named, list) else []
    who = f" on rank{'s' if len(ranks) > 1 else ''} {numbers(ranks)}" if ranks else ""
    return f"{cause.get('slug', 'unknown')}{who}: {cause.get('reason', '')}"


def _precise(seconds: float) -> str:
    return f"{seconds:.1f} s" if seconds < 60 else duration(seconds)


def _is_restart(record: Record) -> bool:
    return record["kind"] == "action" and record.get("action") == "restart"


def _whole(record: Record, name: str) -> int:
    value = record.get(name)
    return value if isinstance(value, int) and not isinstance(value, bool) else 0


def _seconds(record: Record, name: str) -> float:
    value = record.get(name)
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else 0.0
