"""How much memory a copy of the state may still take here."""

from __future__ import annotations

from holdfast.errors import EnvironmentFailure
from holdfast.system.cgroup_files import number, read, table
from holdfast.system.cgroup_tree import find

MARGIN = 0.9
"""the share of what is free that we would take"""


class NoRoomError(EnvironmentFailure):
    """There is not enough memory for a copy of the state."""


def memory_room(root: str = "/") -> int | None:
    """Bytes that could still be used here; None where nothing tells.

    Memory shared through a memfd counts as used by this process's cgroup. Asking the kernel for
    too much of it does not fail politely: the OOM killer ends the rank.
    """
    sides = [_machine(root), *_cgroups(root)]
    return min((side for side in sides if side is not None), default=None)


def _machine(root: str) -> int | None:
    for line in read(f"{root}/proc", "meminfo").splitlines():
        if line.startswith("MemAvailable:"):
            kibibytes = number(line.split()[1])
            return None if kibibytes is None else kibibytes * 1024
    return None


def _cgroups(root: str) -> list[int | None]:
    """Of every level above us that sets a limit; the page cache counts as free."""
    try:
        memory = find("memory", root)
    except (LookupError, OSError):
        return []
    if memory is None:
        return []
    names = (
        ("memory.limit_in_bytes", "memory.usage_in_bytes", "total_")
        if memory.version == 1
        else ("memory.max", "memory.current", "")
    )
    return [_level(folder, *names) for folder in memory.folders]


def _level(folder: str, limit_file: str, used_file: str, prefix: str) -> int | None:
    limit, used = number(read(folder, limit_file)), number(read(folder, used_file))
    if limit is None or used is None:
        return None
    stat = table(read(folder, "memory.stat"))
    cache = stat.get(f"{prefix}active_file", 0) + stat.get(f"{prefix}inactive_file", 0)
    return max(0, limit - max(0, used - cache))
