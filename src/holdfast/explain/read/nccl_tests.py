"""The JSON that nccl-tests write with `-J`, and what it says.

Its `env` is never looked at: it holds every variable of the user who ran the test.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import msgspec

from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.patterns import nccl_tests as patterns
from holdfast.analysis.logs.wreckage import LogLine, Sighting

_BEGINS = re.compile(rb'\s*\{\s*"version"\s*:\s*\d+\s*,\s*"start_time"\s*:')
MOST_ROWS = 10_000
PLACES = {"out": "out of place", "in": "in place"}


class _Device(msgspec.Struct):
    rank: int = 0
    pid: int = 0
    hostname: str = ""
    device_info: str = ""


class _Config(msgspec.Struct):
    nthreads: int = 1
    ngpus: int = 1
    minimum_bytes: int = 0
    maximum_bytes: int = 0
    devices: list[_Device] = []


class _Result(msgspec.Struct):
    bus_bw: float | str = 0.0
    """'nan' in words"""
    nwrong: float | None = None


class _Row(msgspec.Struct):
    size: int = 0
    redop: str = ""
    out_of_place: _Result | None = None
    in_place: _Result | None = None


class _Bounds(msgspec.Struct):
    count: int = 0


class _Average(msgspec.Struct):
    bandwidth: float | str = 0.0


class NcclTestsFile(msgspec.Struct):
    config: _Config = msgspec.field(default_factory=_Config)
    results: list[_Row] = []
    out_of_bounds: _Bounds | None = None
    average_bus_bandwidth: _Average | None = None


def looks_like(peek: bytes) -> bool:
    return bool(_BEGINS.match(peek))


def read(data: bytes) -> NcclTestsFile | str:
    """What it says, or why it cannot be read: a test that was killed leaves half a file."""
    try:
        return msgspec.json.decode(data, type=NcclTestsFile)
    except msgspec.ValidationError as problem:
        return f"not as nccl-tests write it: {problem}"
    except msgspec.DecodeError:
        return "cut off: the test did not end"


def sightings(told: NcclTestsFile, name: str, *, order: int) -> Iterator[Sighting]:
    """The same that its text would have brought."""
    config = told.config
    found: list[tuple[LogPattern, str, dict[str, Any]]] = [
        (
            patterns.STARTED,
            f"{config.minimum_bytes} to {config.maximum_bytes} bytes, -g {config.ngpus}",
            {
                "threads": config.nthreads,
                "gpus": config.ngpus,
                "least": config.minimum_bytes,
                "most": config.maximum_bytes,
            },
        )
    ]
    for device in config.devices:
        about = {"rank": device.rank, "pid": device.pid, "node": device.hostname}
        words = f"rank {device.rank} on {device.hostname}: {device.device_info}"
        found.append((patterns.DEVICE, words, {**about, "gpu": device.device_info.strip()}))
    found += [_row(row) for row in told.results[:MOST_ROWS]]
    if told.out_of_bounds is not None and told.out_of_bounds.count:
        count = told.out_of_bounds.count
        found.append((patterns.OUT_OF_BOUNDS, f"out_of_bounds: {count}", {"count": count}))
    if told.average_bus_bandwidth is not None:
        rate = told.average_bus_bandwidth.bandwidth
        found.append((patterns.AVERAGE, f"average_bus_bandwidth: {rate}", {"rate": rate}))
    for number, (pattern, text, fields) in enumerate(found, start=1):
        yield Sighting(
            pattern=pattern.name,
            slug=pattern.slug,
            role=pattern.role,
            line=LogLine(text=text, source=name, number=1),
            fields={key: str(value) for key, value in fields.items()},
            order=order + number,
        )


def _row(row: _Row) -> tuple[LogPattern, str, dict[str, Any]]:
    fields: dict[str, Any] = {"size": row.size, "operation": row.redop}
    said = [f"size {row.size}"]
    for name, result in (("out", row.out_of_place), ("in", row.in_place)):
        if result is not None and not isinstance(result.bus_bw, str):
            wrong = "N/A" if result.nwrong is None else f"{result.nwrong:g}"
            fields |= {f"{name}_busbw": result.bus_bw, f"{name}_wrong": wrong}
            said.append(f"{PLACES[name]}: bus_bw {result.bus_bw:g}, nwrong {wrong}")
    return patterns.ROW, ", ".join(said), fields
