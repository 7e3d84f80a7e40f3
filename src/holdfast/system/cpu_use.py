"""How much processor time every process of the machine uses, from two looks at /proc."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.system.proc import ProcessRow, pids, row_of


class Sample(NamedTuple):
    row: ProcessRow
    when: float


def samples() -> dict[int, Sample]:
    """Of every process that this user may see."""
    return {pid: Sample(row, time.monotonic()) for pid in pids() if (row := row_of(pid))}


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
        if pid not in ours and pid in before and before[pid].row.started == now.row.started
    }
    busy = sorted((pid for pid in used if used[pid] > above), key=lambda pid: -used[pid])
    return {pid: used[pid] for pid in busy}


def _share(before: Sample, now: Sample) -> float:
    """Of one core."""
    seconds = (now.row.ticks - before.row.ticks) / os.sysconf("SC_CLK_TCK")
    return seconds / max(now.when - before.when, 0.001)


def _descendants(pid: int, table: Mapping[int, Sample]) -> set[int]:
    """The process and all that it started, directly or not."""
    family, grown = {pid}, True
    while grown:
        more = {child for child, sample in table.items() if sample.row.parent in family} - family
        family |= more
        grown = bool(more)
    return family
