"""Runs of nccl-tests in what is left of a job, from text or JSON. Pure."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.logs.patterns import nccl_tests as patterns
from holdfast.analysis.logs.wreckage import Sighting, Wreckage

GB = 1e9


class NcclTestsRow(NamedTuple):
    size: int
    """bytes"""
    bandwidth: float
    """bus bandwidth, bytes a second; the better of out of place and in place"""
    wrong: int
    seen: Sighting


class NcclTestsRun(NamedTuple):
    started: Sighting
    ranks: int
    nodes: tuple[str, ...]
    gpus: tuple[str, ...]
    """product names, each once"""
    rows: tuple[NcclTestsRow, ...]
    """the first and last of many"""
    wrong: tuple[Sighting, ...]
    """its own verdict that values were wrong"""
    timed_out: tuple[Sighting, ...]
    ended: bool
    """it came to its last line"""

    @property
    def largest(self) -> NcclTestsRow | None:
        return max(self.rows, key=lambda row: row.size, default=None)


def runs(wreckage: Wreckage) -> list[NcclTestsRun]:
    """In the order read; one log may hold several."""
    return wreckage.memo(_runs)


def _runs(wreckage: Wreckage) -> list[NcclTestsRun]:
    groups: list[list[Sighting]] = []
    for one in wreckage.seen(*patterns.ALL):
        if one.pattern == patterns.STARTED.name:
            groups.append([one])
        elif groups and groups[-1][0].line.source == one.line.source:
            groups[-1].append(one)
    return [_run(group) for group in groups]


def _run(group: list[Sighting]) -> NcclTestsRun:
    started = group[0]

    def of(pattern: str) -> tuple[Sighting, ...]:
        return tuple(one for one in group if one.pattern == pattern)

    devices = of(patterns.DEVICE.name)
    each = int(started.fields["threads"]) * int(started.fields["gpus"])
    listed = max((int(one.fields["rank"]) + 1 for one in devices), default=0)
    return NcclTestsRun(
        started=started,
        ranks=max(each, listed),
        nodes=tuple(dict.fromkeys(one.fields["node"] for one in devices)),
        gpus=tuple(dict.fromkeys(one.fields["gpu"] for one in devices)),
        rows=tuple(row for one in of(patterns.ROW.name) if (row := _row(one)) is not None),
        wrong=of(patterns.OUT_OF_BOUNDS.name),
        timed_out=of(patterns.TIMED_OUT.name),
        ended=bool(of(patterns.AVERAGE.name)),
    )


def _row(seen: Sighting) -> NcclTestsRow | None:
    """None where nothing was measured: a single rank has a bandwidth of nan."""
    fields = seen.fields
    speeds = [float(fields[name]) for name in ("out_busbw", "in_busbw") if name in fields]
    wrongs = [fields[name] for name in ("out_wrong", "in_wrong") if name in fields]
    if not speeds:
        return None
    return NcclTestsRow(
        size=int(fields["size"]),
        bandwidth=max(speeds) * GB,
        wrong=sum(int(float(wrong)) for wrong in wrongs if wrong != "N/A"),
        seen=seen,
    )
