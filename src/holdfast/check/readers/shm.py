"""Shared memory: how large /dev/shm is, and whether memory can really be had there."""

from __future__ import annotations

import errno
import os

from holdfast.analysis.machine import Plan, Shm
from holdfast.check.readers import cgroup
from holdfast.check.readers.load import memory_info

FOLDER = "/dev/shm"  # noqa: S108 - the folder that training uses, not a choice of ours
WANTED = 64 << 20
"""Two of NCCL's large shared buffers ('failed to extend /dev/shm/nccl-… to 33030532 bytes'),
and all that Docker gives by default: enough to meet a refusal, taken and given back in 50 ms."""


def read_shm(_plan: Plan, folder: str = FOLDER, wanted: int = WANTED) -> Shm:
    """Size and free space, and a real allocation: statvfs knows neither permissions nor the
    memory cgroup that pays for the pages.
    """
    try:
        stat = os.statvfs(folder)
    except FileNotFoundError:
        return Shm(size=0, free=0, tried=0, error="ENOENT")
    size, free = stat.f_blocks * stat.f_frsize, stat.f_bavail * stat.f_frsize
    memory = memory_info()
    if size == 0:  # a tmpfs mounted with size=0 has no limit but the memory itself
        size, free = memory["MemTotal"], memory["MemAvailable"]
    # An eighth at most: where memory is scarce, asking for it would wake the OOM killer.
    cautious = min(memory["MemAvailable"], _cgroup_room(memory["MemTotal"])) // 8
    tried, error = try_allocation(folder, max(1, min(wanted, free, cautious)))
    return Shm(size=size, free=free, tried=tried, error=error)


def _cgroup_room(otherwise: int) -> int:
    try:
        room = cgroup.memory_use().room
    except (LookupError, OSError):  # not visible here; the machine's own memory must do
        room = None
    return otherwise if room is None else room


def try_allocation(folder: str, count: int) -> tuple[int, str]:
    """Allocate this much in a file without a name, which leaves nothing behind even if we are
    killed. Returns the bytes tried (0 where the file system has no such files), and the
    errno's name or ''.
    """
    try:
        file = os.open(folder, os.O_TMPFILE | os.O_RDWR | os.O_CLOEXEC, 0o600)
    except OSError as problem:
        if problem.errno in (errno.EOPNOTSUPP, errno.EISDIR):
            return 0, ""
        return count, _name(problem)
    try:
        os.posix_fallocate(file, 0, count)
    except OSError as problem:
        return count, _name(problem)
    finally:
        os.close(file)
    return count, ""


def _name(problem: OSError) -> str:
    return errno.errorcode.get(problem.errno or 0, str(problem))
