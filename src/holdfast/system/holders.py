"""Who holds a file open or mapped, found in one walk over /proc."""

from __future__ import annotations

import os
from collections.abc import Collection
from typing import NamedTuple

from holdfast.system import proc

UNKNOWN = -1
"""no user has this number"""


class Holders(NamedTuple):
    pids: dict[str, tuple[int, ...]]
    """for every path asked about"""
    hidden: frozenset[int]
    """users of the processes that could not be looked into, pid 1 apart; UNKNOWN for those of
    whom not even that can be seen"""


def holders(paths: Collection[str], *, mapped: bool = False) -> Holders:
    """The processes that have these files open, and mapped too where asked.

    Mappings matter for shared memory, whose descriptor is usually closed after mmap; reading
    them costs far more than reading descriptors. A folder is held when a file in it is.
    """
    real = {path: os.path.realpath(path) for path in paths}
    pids: dict[str, list[int]] = {path: [] for path in paths}
    hidden: set[int] = set()
    visible = proc.pids()
    if proc.is_restricted(visible):
        hidden.add(UNKNOWN)
    for pid in visible if real else ():
        try:
            held = proc.open_files(pid)
            maps = proc.maps(pid) if mapped else ""
        except PermissionError:
            hidden.update(_user(pid) if pid != 1 else ())
            continue
        except proc.GONE:
            continue  # it ended while we looked
        for path, target in real.items():
            inside = target + "/"
            if any(p == target or p.startswith(inside) for p in held) or f" {target}\n" in maps:
                pids[path].append(pid)
    return Holders({path: tuple(found) for path, found in pids.items()}, frozenset(hidden))


def _user(pid: int) -> list[int]:
    """Not by the owner of /proc/PID: that is root for a process that hides itself."""
    try:
        return [int(proc.status(pid)["Uid"].split()[0])]
    except PermissionError:  # hidepid=1
        return [UNKNOWN]
    except proc.GONE:
        return []
