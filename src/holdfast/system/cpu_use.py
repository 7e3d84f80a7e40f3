"""How much processor time every process of the machine uses, from two looks at /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.system.process_table import stat_of


class Sample(NamedTuple):
    started: int
    """with the pid, this names a process for good: pids are used again"""
    parent: int
    ticks: int
    """CPU time of all its threads"""
    when: float


def samples() -> dict[int, Sample]:
    """Of every process that this user may see."""
    found = {}
    for name in os.listdir("/proc"):
        if not name.isdigit():
            continue
        if text := stat_of(int(name)):  # else it ended, or is hidden from this user
            found[int(name)] = parse_stat(text, time.monotonic())
    return found


def parse_stat(text: str, when: float) -> Sample:
    """/proc/PID/stat; the name in brackets may hold blanks and brackets, so count after it."""
    fields = text.rpartition(")")[2].split()
    return Sample(
        started=int(fields[19]),
        parent=int(fields[1]),
        ticks=int(fields[11]) + int(fields[12]),
        when=when,
    )


def strangers(
    before: Mapping[int, Sample], after: Mapping[int, Sample], *, family: int, above: float
) -> dict[int, float]:
    """Who used more than `above` cores between the looks, the busiest first.

    The process `family` and all that descends from it are no strangers, nor are we.
    """
    ours = _descendants(family, after) | {os.getpid()}
    used = {
        pid: _share(before[pid], now)
        for pid, now in after.items()
        if pid not in ours and pid in before and before[pid].started == now.started
    }
    busy = sorted((pid for pid in used if used[pid] > above), key=lambda pid: -used[pid])
    return {pid: used[pid] for pid in busy}


def _share(before: Sample, now: Sample) -> float:
    """Of one core."""
    seconds = (now.ticks - before.ticks) / os.sysconf("SC_CLK_TCK")
    return seconds / max(now.when - before.when, 0.001)


def _descendants(pid: int, table: Mapping[int, Sample]) -> set[int]:
    """The process and all that it started, directly or not."""
    family, grown = {pid}, True
    while grown:
        more = {child for child, sample in table.items() if sample.parent in family} - family
        family |= more
        grown = bool(more)
    return family
