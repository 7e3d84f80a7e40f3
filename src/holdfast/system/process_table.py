"""Every process as /proc/PID/stat shows it to any user: who, whose child, in which state."""

from __future__ import annotations

import os
from typing import NamedTuple

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in the kernel's include/linux/sched.h"""


LONGEST = 4096
"""bytes of a stat file: some fifty numbers and a short name"""


class Row(NamedTuple):
    pid: int
    name: str
    """the kernel's short name, at most 15 characters"""
    state: str
    parent: int
    session: int
    is_kernel: bool
    threads: int
    started: int
    """clock ticks since boot"""


def process_table() -> dict[int, Row]:
    rows = (row_of(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {row.pid: row for row in rows if row}


def row_of(pid: int) -> Row | None:
    """None when the process is gone, or hidden from this user (/proc mounted with hidepid)."""
    text = stat_of(pid)
    return parse(text) if text else None


def stat_of(pid: int) -> str:
    """/proc/PID/stat; '' where row_of has no answer.

    A busy machine has thousands of them: plain system calls cost a third of open().
    """
    try:
        handle = os.open(f"/proc/{pid}/stat", os.O_RDONLY | os.O_CLOEXEC)
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return ""
    try:
        return os.read(handle, LONGEST).decode(errors="replace")
    except ProcessLookupError:
        return ""
    finally:
        os.close(handle)


def parse(stat: str) -> Row:
    """The name stands in parentheses and may hold spaces and parentheses itself."""
    before, _, after = stat.rpartition(")")
    pid, _, name = before.partition("(")
    fields = after.split()
    return Row(
        pid=int(pid),
        name=name,
        state=fields[0],
        parent=int(fields[1]),
        session=int(fields[3]),
        is_kernel=bool(int(fields[6]) & _KERNEL_THREAD),
        threads=int(fields[17]),
        started=int(fields[19]),
    )
