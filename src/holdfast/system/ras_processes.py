"""What the kernel of this machine says of the processes that NCCL's RAS misses."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast.analysis.ras.answer import RasAnswer
from holdfast.system.interface_addresses import interface_addresses
from holdfast.system.proc import folder, row_of

LIBRARIES = (b"libnccl", b"libtorch_cuda")
"""in the memory of a process that uses NCCL; torch may have it built in"""


def silent_states(answer: RasAnswer) -> dict[int, str]:
    """pid -> the kernel's letter, '' for one that is gone. Nothing where those that answer cannot
    be found here either: the job has pids of its own, inside a container."""
    try:
        here = {one.ip for one in interface_addresses()}
    except OSError:
        return {}
    answering = [
        member.pid
        for one in answer.communicators
        for member in one.members
        if member.pid and member.state == "answers" and member.host in here
    ]
    if not answering or not all(map(_uses_nccl, dict.fromkeys(answering))):
        return {}
    return _states(one.pid for one in answer.silent if one.host in here)


def _states(pids: Iterable[int]) -> dict[int, str]:
    rows = {pid: row_of(pid) for pid in pids}
    return {pid: row.state if row else "" for pid, row in rows.items()}


def _uses_nccl(pid: int) -> bool:
    """False too where this user may not look."""
    try:
        with open(f"{folder(pid)}/maps", "rb") as file:
            return any(name in line for line in file for name in LIBRARIES)
    except OSError:
        return False
