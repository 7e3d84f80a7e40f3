"""The launcher of a run: noted so that no other process is mistaken for it later.

A bare pid is worth nothing: the kernel gives it to the next process, another container counts
its own, and a shared disk shows the runs of other machines.
"""

from __future__ import annotations

import contextlib
import os
import socket
from collections.abc import Sequence
from typing import Literal

import msgspec

from holdfast.run.runs import redact
from holdfast.system import proc
from holdfast.system.kernel_calls import memory_file
from holdfast.system.proc import row_of

DEFAULT_GRACE = 30.0
"""of a launcher that did not note its own"""
SLURM_JOB = "SLURM_JOB_ID"
_MARKS: list[int] = []
"""open for as long as this process lives"""
Liveness = Literal["alive", "gone", "unknown"]


class LauncherIdentity(msgspec.Struct, frozen=True, kw_only=True):
    """The content of launcher.json."""

    pid: int
    started_ticks: int
    """clock ticks from boot to its start: pid and this together are never given twice"""
    boot_id: str
    pid_namespace: int
    """inode of the namespace that counts this pid; containers of one machine share a boot id"""
    host: str
    user: int
    command: tuple[str, ...]
    """secrets redacted"""
    grace: float = DEFAULT_GRACE
    """seconds its ranks have to save and exit when it is told to stop"""
    slurm_job: str | None = None
    """SLURM_JOB_ID; '' outside of Slurm, null where an older holdfast did not note it"""
    cgroup: str | None = None
    """/proc/self/cgroup, lines joined by '|': what it starts stays there, other jobs have others"""


def this_process(command: Sequence[str], *, grace: float = DEFAULT_GRACE) -> LauncherIdentity:
    row = row_of(os.getpid())
    return LauncherIdentity(
        pid=os.getpid(),
        started_ticks=row.started if row else 0,
        boot_id=boot_id(),
        pid_namespace=_pid_namespace(),
        host=socket.gethostname(),
        user=os.getuid(),
        command=tuple(redact.from_arguments(command)),
        grace=grace,
        slurm_job=os.environ.get(SLURM_JOB, ""),
        cgroup=cgroup_of("self"),
    )


def read(path: str) -> LauncherIdentity | None:
    """None when there is no such file, or it is not ours."""
    try:
        with open(path, "rb") as file:
            return msgspec.json.decode(file.read(), type=LauncherIdentity)
    except (OSError, ValueError):
        return None


def liveness(launcher: LauncherIdentity) -> Liveness:
    """'unknown' when it cannot be seen from here: another machine, or another container."""
    if launcher.boot_id != boot_id():
        return "gone" if launcher.host == socket.gethostname() else "unknown"
    if launcher.pid_namespace != _pid_namespace():
        return "unknown"
    if not launcher.started_ticks or not proc.counts_like_us(os.getpid()):
        return "unknown"  # there, or here, /proc does not say which process is which
    return "alive" if is_process(launcher) else "gone"


def is_process(launcher: LauncherIdentity) -> bool:
    """Whether that pid is that very process, and not a zombie or the next one of that number."""
    row = row_of(launcher.pid)
    return row is not None and row.started == launcher.started_ticks and row.state not in "ZX"


def hold_mark(folder: str) -> None:
    """Shows, for as long as this process lives, that it is the launcher of the run in that folder.

    launcher.json can be forged where others may write: it would have `holdfast stop` signal any
    process of the user. An open memfd with the folder's name can be had by that process alone, and
    no file system is involved.
    """
    with contextlib.suppress(OSError):  # no descriptors left: then `stop` refuses, and says so
        _MARKS.append(memory_file(_mark(folder)))


def holds_mark(pid: int, folder: str) -> bool:
    """Raises PermissionError for a process of another user."""
    try:
        return f"/memfd:{_mark(folder)} (deleted)" in proc.open_files(pid)
    except proc.GONE:
        return False


def _mark(folder: str) -> str:
    """A copy of a run's folder has another number."""
    seen = os.stat(folder)
    return f"holdfast-run:{seen.st_dev}:{seen.st_ino}"


def boot_id() -> str:
    """'' where /proc hides it; then equal only to another ''."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def cgroup_of(pid: int | str) -> str:
    """'' when the process is gone."""
    try:
        with open(f"{proc.folder(pid)}/cgroup", encoding="utf-8", errors="replace") as file:
            return "|".join(sorted(file.read().splitlines()))
    except OSError:
        return ""


def _pid_namespace() -> int:
    try:
        return os.stat("/proc/self/ns/pid").st_ino
    except OSError:
        return 0
