"""The files of a cgroup: read, parsed, and the quota that binds.

A file that does not exist means that no limit is set at that level.
"""

from __future__ import annotations

import errno
import os
from typing import NamedTuple

from holdfast.system.cgroup_tree import CgroupFolder


class Quota(NamedTuple):
    cores: float
    folder: str
    """of the level that sets it; its cpu.stat counts how often it ran out"""


def quota(place: CgroupFolder) -> Quota | None:
    """The smallest on the way up; None where no level sets one."""
    ask = _quota_v1 if place.version == 1 else _quota_v2
    levels = [Quota(cores, f) for f in place.folders if (cores := ask(f)) is not None]
    return min(levels, default=None)


def _quota_v1(folder: str) -> float | None:
    allowed = number(read(folder, "cpu.cfs_quota_us"))
    period = number(read(folder, "cpu.cfs_period_us"))
    return allowed / period if allowed and period and allowed > 0 else None


def _quota_v2(folder: str) -> float | None:
    words = [*read(folder, "cpu.max").split(), "", ""]
    allowed, period = number(words[0]), number(words[1])
    return allowed / period if allowed and period else None


def read(folder: str, name: str) -> str:
    """The text of a file, '' where the kernel has no such answer; other errors are raised."""
    try:
        with open(os.path.join(folder, name), encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError as problem:
        # EOPNOTSUPP: pressure is compiled in, but switched off at boot.
        if problem.errno in (errno.ENOENT, errno.ENODEV, errno.EOPNOTSUPP):
            return ""
        raise


def number(text: str) -> int | None:
    """'1048576' as a number; None for 'max' and for nothing."""
    try:
        return int(text)
    except ValueError:
        return None


def table(text: str) -> dict[str, int]:
    """'name number' on each line."""
    pairs = (line.split() for line in text.splitlines())
    found = {pair[0]: number(pair[1]) for pair in pairs if len(pair) == 2}
    return {name: value for name, value in found.items() if value is not None}


def some(pressure: str, span: str) -> float | None:
    """Per cent of the last `span` ('avg10', 'avg60') in which some task waited.

    The kernel writes 'some avg10=… avg60=2.87 …'; see its Documentation/accounting/psi.rst.
    """
    for line in pressure.splitlines():
        kind, *fields = line.split() or [""]
        for field in fields if kind == "some" else ():
            name, _, value = field.partition("=")
            if name == span:
                try:
                    return float(value)
                except ValueError:
                    return None
    return None
