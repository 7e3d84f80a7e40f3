"""What the cgroup of this process allows: CPU, memory and processes.

A cgroup is bound by its own limits and by those of every ancestor, so each question is asked
all the way up, as far as the tree is visible from here (a container rarely sees above itself).
A file that does not exist means that no limit is set at that level: the kernel makes
`memory.max` and its like only where the controller is switched on, and never at the root.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import NamedTuple

from holdfast.analysis.machine import Cgroup, Plan
from holdfast.system.cgroup_files import number, quota, read, some, table
from holdfast.system.cgroup_tree import UNIFIED, CgroupFolder, find

NO_LIMIT_V1 = 1 << 60
"""v1 says 'unlimited' with the largest multiple of a page below 2^63"""


class CgroupUse(NamedTuple):
    """How much of something a cgroup may have (None: no limit), and has."""

    limit: int | None
    used: int | None

    @property
    def room(self) -> int | None:
        return None if self.limit is None else self.limit - (self.used or 0)


def read_cgroup(_plan: Plan, root: str = "/") -> Cgroup:
    cpu, memory = find("cpu", root), find("memory", root)
    place = memory or cpu
    if place is None:
        raise LookupError("this process belongs to no cgroup")
    quota, throttled = _cpu(cpu)
    use = memory_use(root)
    return Cgroup(
        version=place.version,
        path=place.path,
        cpu_quota=quota,
        throttled_share=throttled,
        memory_limit=use.limit,
        memory_used=use.used,
        oom_kills=_oom_kills(memory),
        memory_pressure=_pressure("memory", root),
        cpu_pressure=_pressure("cpu", root),
    )


def memory_use(root: str = "/") -> CgroupUse:
    """Memory at the level that will be full first; our own use where nothing is limited."""
    place = find("memory", root)
    if place is None:
        return CgroupUse(None, None)
    measure = _memory_v1 if place.version == 1 else _memory_v2
    return _fullest(measure(folder) for folder in place.folders)


def process_use(root: str = "/") -> CgroupUse:
    """Processes and threads at the level that will be full first."""
    place = find("pids", root)
    if place is None:
        return CgroupUse(None, None)
    return _fullest(
        CgroupUse(number(read(folder, "pids.max")), number(read(folder, "pids.current")))
        for folder in place.folders
    )


def _fullest(levels: Iterable[CgroupUse]) -> CgroupUse:
    """The level with the least room left; our own where none is limited."""
    own, *_ = every = list(levels)
    return min(
        (use for use in every if use.room is not None), key=lambda use: use.room or 0, default=own
    )


# --- one level ---------------------------------------------------------------------------------


def _cpu(place: CgroupFolder | None) -> tuple[float | None, float | None]:
    """The smallest quota in cores, and the share of periods in which it ran out."""
    level = quota(place) if place else None
    if level is None:
        return None, None
    counts = table(read(level.folder, "cpu.stat"))
    periods = counts.get("nr_periods", 0)
    return level.cores, counts.get("nr_throttled", 0) / periods if periods else 0.0


def _memory_v1(folder: str) -> CgroupUse:
    stat = table(read(folder, "memory.stat"))
    # The second counts ancestors that are not mounted here, too.
    limits = (number(read(folder, "memory.limit_in_bytes")), stat.get("hierarchical_memory_limit"))
    limit = min((value for value in limits if value is not None), default=NO_LIMIT_V1)
    cache = stat.get("total_active_file", 0) + stat.get("total_inactive_file", 0)
    used = number(read(folder, "memory.usage_in_bytes"))
    return CgroupUse(limit if limit < NO_LIMIT_V1 else None, _without(used, cache))


def _memory_v2(folder: str) -> CgroupUse:
    stat = table(read(folder, "memory.stat"))
    cache = stat.get("active_file", 0) + stat.get("inactive_file", 0)
    used = number(read(folder, "memory.current"))
    return CgroupUse(number(read(folder, "memory.max")), _without(used, cache))


def _without(used: int | None, cache: int) -> int | None:
    """Use without the page cache: the kernel drops cached file pages before it kills anyone.

    Files in /dev/shm stay counted: they live among the anonymous pages.
    """
    return None if used is None else max(0, used - cache)


def out_of_memory_kills(root: str = "/") -> int | None:
    """In our own cgroup since it was made; None where the kernel does not count them."""
    return _oom_kills(find("memory", root))


def _oom_kills(memory: CgroupFolder | None) -> int | None:
    """The kernel counts a kill in the victim's own cgroup, whichever ancestor ran out."""
    if memory is None:
        return None
    file = "memory.oom_control" if memory.version == 1 else "memory.events"
    return table(read(memory.folders[0], file)).get("oom_kill")


def _pressure(what: str, root: str) -> float | None:
    """Of our own cgroup where there is v2, else of the whole machine.

    In this order, because a neighbour held back by its own quota shows as pressure on the
    whole machine without costing us anything.
    """
    try:
        unified = find(UNIFIED, root)
    except LookupError:
        unified = None
    own = read(unified.folders[0], f"{what}.pressure") if unified else ""
    return some(own or read(os.path.join(root, "proc/pressure"), what), "avg60")
