"""Every process as /proc/PID/stat shows it to any user: who, whose child, in which state."""

from __future__ import annotations

import os
from typing import NamedTuple

_KERNEL_THREAD = 0x00200000
"""PF_KTHREAD in the kernel's include/linux/sched.h"""


class Row(NamedTuple):
    pid: int
    name: str
    """the kernel's short name, at most 15 characters"""
    state: str
    parent: int
    session: int
    is_kernel: bool
    started: int
    """clock ticks since boot"""


def process_table() -> dict[int, Row]:
    rows = (row_of(int(name)) for name in os.listdir("/proc") if name.isdigit())
    return {row.pid: row for row in rows if row}


def row_of(pid: int) -> Row | None:
    """None when the process is gone, or hidden from this user (/proc mounted with hidepid)."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8", errors="replace") as file:
            return parse(file.read())
    except (FileNotFoundError, ProcessLookupError, PermissionError):
        return None


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
        started=int(fields[19]),
    )
