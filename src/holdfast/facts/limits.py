"""What this user and this job may take."""

from __future__ import annotations

from holdfast.facts.base import Fact


class Limit(Fact, frozen=True):
    """None means unlimited."""

    soft: int | None
    hard: int | None


class Limits(Fact, frozen=True):
    pid: int
    nofile: Limit
    memlock: Limit
    """bytes"""
    nproc: Limit
    stack: Limit
    """bytes"""
    ipc_lock: bool
    """CAP_IPC_LOCK: memlock does not bind"""
    sys_resource: bool
    """CAP_SYS_RESOURCE or uid 0: nproc does not bind"""


class ProcessRoom(Fact, frozen=True):
    """How many processes and threads may still be started."""

    user_threads: int
    """threads of this user now"""
    pids_max: int | None
    """the cgroup's limit; None means unlimited"""
    pids_current: int | None
    threads_max: int
    """kernel.threads-max"""
    pid_max: int


class Shm(Fact, frozen=True):
    size: int
    free: int
    tried: int
    """bytes of the real allocation we tried (and gave back)"""
    error: str
    """'' when it worked, else the errno's name"""
