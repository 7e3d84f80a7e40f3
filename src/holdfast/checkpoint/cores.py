"""How many threads copy, hash, read and write for one rank. No torch."""

from __future__ import annotations

import os

from holdfast.system.cgroup_files import quota
from holdfast.system.cgroup_tree import find

MOST = 8
"""threads: memory and disks give no more to further ones"""


def threads_for(peers: int) -> int:
    """For one of so many ranks here that are busy at the same time."""
    return max(1, min(MOST, _cores() // peers))


def disk_threads(peers: int) -> int:
    """The same for threads that hash and use the disk in turn: one more, as one waits."""
    return threads_for(peers) + 1


def ranks_here() -> int:
    """On this machine, as the launcher says; 1 where it does not."""
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return max(1, int(text)) if text.isdigit() else 1


def _cores() -> int:
    """That this process may use: its affinity, and the quota of its cgroup."""
    allowed = len(os.sched_getaffinity(0))
    try:
        cpu = find("cpu")
        limit = quota(cpu) if cpu else None
    except (LookupError, OSError):
        limit = None
    return allowed if limit is None else min(allowed, int(limit.cores))
