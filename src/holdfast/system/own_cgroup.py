"""A cgroup of our own inside ours, for processes that are to get less than we have: v1 and v2."""

from __future__ import annotations

import contextlib
import itertools
import os
import subprocess
from typing import Literal

from holdfast.system import cgroup_files
from holdfast.system.cgroup_tree import CgroupFolder, find

Controller = Literal["memory", "cpu"]
PERIOD = 100_000
"""microseconds; the kernel's own default"""
LEAST_QUOTA = 1_000
"""microseconds; the kernel refuses less"""

_LIMITS = {("memory", 1): "memory.limit_in_bytes", ("memory", 2): "memory.max",
           ("cpu", 1): "cpu.cfs_quota_us", ("cpu", 2): "cpu.max"}  # fmt: skip
_NO_LIMIT = {("memory", 1): "-1", ("memory", 2): "max",
             ("cpu", 1): "-1", ("cpu", 2): f"max {PERIOD}"}  # fmt: skip
_USED = {1: "memory.usage_in_bytes", 2: "memory.current"}
_KILLS = {1: "memory.oom_control", 2: "memory.events"}
_numbers = itertools.count(1)

# Its input ends with us, by SIGKILL too; the kernel keeps a cgroup for a moment after its last
# process went.
_REMOVE_AFTER_US = (
    'cat > /dev/null; i=0; while [ -d "$0" ] && [ $i -lt 300 ]; do rmdir "$0" 2> /dev/null; '
    "i=$((i + 1)); sleep 0.1; done"
)


class CannotLimitError(Exception):
    """No such cgroup can be made here; the message says why."""


class OwnCgroup:
    """Gone when `remove` was called or this process has ended, however it ended."""

    def __init__(self, controller: Controller) -> None:
        place = _place(controller)
        self._limit = (controller, place.version)
        self._outside = place.folders[0]
        self._above, self.path = _make(place, controller)
        self._remover = subprocess.Popen(
            ["/bin/sh", "-c", _REMOVE_AFTER_US, self.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def add(self, pid: int) -> None:
        """With all its threads; what it starts from now on is in it too."""
        _write(self.path, "cgroup.procs", str(pid))

    def command(self, command: list[str]) -> list[str]:
        """The same command, started inside."""
        join = 'echo 0 > "$0"/cgroup.procs && exec "$@"'
        return ["/bin/sh", "-c", join, self.path, *command]

    def limit_memory(self, size: int) -> None:
        self._set(str(size))

    def limit_cpu(self, cores: float) -> None:
        quota = max(int(cores * PERIOD), LEAST_QUOTA)
        self._set(str(quota) if self._limit[1] == 1 else f"{quota} {PERIOD}")

    def lift(self) -> None:
        self._set(_NO_LIMIT[self._limit])

    def memory_used(self) -> int:
        used = cgroup_files.number(cgroup_files.read(self.path, _USED[self._limit[1]]))
        return used or 0

    def memory_kills(self) -> int:
        """Processes in it that the OOM killer has ended."""
        return cgroup_files.table(cgroup_files.read(self.path, _KILLS[self._limit[1]])).get(
            "oom_kill", 0
        )

    def remove(self) -> None:
        """Whatever is still in it goes back to where it came from, without the limit."""
        for pid in cgroup_files.read(self.path, "cgroup.procs").split():
            with contextlib.suppress(OSError):  # it has ended
                _write(self._outside, "cgroup.procs", pid)
        self._remover.communicate()
        if os.path.exists(self.path):
            raise OSError(f"{self.path} could not be removed")

    def _set(self, limit: str) -> None:
        _write(self.path, _LIMITS[self._limit], limit)


def _place(controller: Controller) -> CgroupFolder:
    try:
        place = find(controller)
    except (LookupError, OSError) as problem:
        raise CannotLimitError(str(problem)) from problem
    if place is None:
        raise CannotLimitError(f"this process is in no {controller} cgroup")
    return place


def _make(place: CgroupFolder, controller: Controller) -> tuple[str, str]:
    """v2 has a limit only in a cgroup whose parent passes the controller on, which one with
    processes in it may not: then beside ours, if ours limits nothing that would be evaded."""
    reason = f"the {controller} controller is not passed on to a cgroup inside ours"
    for above in place.folders:
        path = os.path.join(above, f"holdfast-{os.getpid()}-{next(_numbers)}")
        try:
            os.mkdir(path)
        except OSError as problem:
            raise CannotLimitError(f"no cgroup can be made: {problem}") from problem
        if os.path.exists(os.path.join(path, _LIMITS[controller, place.version])):
            return above, path
        os.rmdir(path)
        limit = cgroup_files.read(above, _LIMITS[controller, place.version]).strip()
        if limit and not limit.startswith("max"):
            raise CannotLimitError(f"{reason}, and ours has a limit of its own")
    raise CannotLimitError(reason)


def _write(folder: str, name: str, text: str) -> None:
    with open(os.path.join(folder, name), "w", encoding="utf-8") as file:
        file.write(text)
