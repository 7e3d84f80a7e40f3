"""Resource limits of this process and of a launcher, and room for more processes."""

from __future__ import annotations

import contextlib
import os
import re
import resource
from collections.abc import Mapping

from holdfast.analysis.machine import Limit, Limits, Plan, ProcessRoom, Unread
from holdfast.check.readers import cgroup
from holdfast.check.readers.container import is_whole_user_map
from holdfast.system import proc

CAP_IPC_LOCK, CAP_SYS_ADMIN, CAP_SYS_RESOURCE = 14, 21, 24  # linux/capability.h

ROWS = {
    "nofile": "Max open files",
    "memlock": "Max locked memory",
    "nproc": "Max processes",
    "stack": "Max stack size",
}
"""our name: the kernel's row in /proc/PID/limits"""


def read_limits(_plan: Plan) -> Limits:
    """Those that ranks started from this shell would inherit."""
    return _limits(
        os.getpid(),
        nofile=_own(resource.RLIMIT_NOFILE),
        memlock=_own(resource.RLIMIT_MEMLOCK),
        nproc=_own(resource.RLIMIT_NPROC),
        stack=_own(resource.RLIMIT_STACK),
    )


def read_launcher_limits(plan: Plan) -> Limits | Unread | None:
    """Those of the process the user named: sshd, slurmd and containers set their own."""
    pid = plan.launcher_pid
    if pid is None:
        return None
    try:
        rows = parse_limits(proc.text(f"/proc/{pid}/limits"))
        return _limits(pid, **{name: rows[row] for name, row in ROWS.items()})
    except proc.GONE:
        return Unread(why=f"no process with pid {pid} is visible on this machine")


def read_process_room(_plan: Plan) -> ProcessRoom:
    use = cgroup.process_use()
    return ProcessRoom(
        user_threads=_threads_of(os.getuid()),
        pids_max=use.limit,
        pids_current=use.used,
        threads_max=int(proc.text("/proc/sys/kernel/threads-max")),
        pid_max=int(proc.text("/proc/sys/kernel/pid_max")),
    )


def _limits(pid: int, *, nofile: Limit, memlock: Limit, nproc: Limit, stack: Limit) -> Limits:
    status = proc.status(pid)
    capabilities = int(status["CapEff"], 16)
    # The kernel asks for these capabilities in the first user namespace only: root of a
    # rootless container has them all and is bound by the limits nevertheless.
    privileged = is_whole_user_map(proc.text(f"/proc/{pid}/uid_map"))
    is_root = status["Uid"].split()[0] == "0"
    has = {bit for bit in range(64) if capabilities >> bit & 1}
    return Limits(
        pid=pid,
        nofile=nofile,
        memlock=memlock,
        nproc=nproc,
        stack=stack,
        ipc_lock=privileged and CAP_IPC_LOCK in has,
        # kernel/fork.c lets any of the three pass RLIMIT_NPROC.
        sys_resource=privileged and (is_root or bool(has & {CAP_SYS_RESOURCE, CAP_SYS_ADMIN})),
    )


def _own(which: int) -> Limit:
    soft, hard = (None if n == resource.RLIM_INFINITY else n for n in resource.getrlimit(which))
    return Limit(soft=soft, hard=hard)


def parse_limits(text: str) -> Mapping[str, Limit]:
    """/proc/PID/limits: a table of name, soft, hard, unit, whose names hold blanks."""
    found = {}
    for line in text.splitlines():
        for name in ROWS.values():
            if row := re.match(rf"{name} +(unlimited|\d{{1,20}}) +(unlimited|\d{{1,20}})\b", line):
                soft, hard = (None if word == "unlimited" else int(word) for word in row.groups())
                found[name] = Limit(soft=soft, hard=hard)
    return found


def _threads_of(uid: int) -> int:
    """Threads count against RLIMIT_NPROC like processes. From inside a container the same
    user's threads outside it count as well, but cannot be seen.
    """
    total = 0
    for pid in proc.pids():
        # One that ends while we look counts no more.
        with contextlib.suppress(*proc.GONE):
            if os.stat(f"/proc/{pid}").st_uid == uid and (row := proc.row_of(pid)):
                total += row.threads
    return total
