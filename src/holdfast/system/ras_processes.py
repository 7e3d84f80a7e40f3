"""What the kernel of this machine says of the processes that NCCL's RAS misses."""

from __future__ import annotations

import os
from collections.abc import Iterable

from holdfast.analysis.ras.answer import RasAnswer
from holdfast.system.interface_addresses import interface_addresses
from holdfast.system.proc import row_of

RAS_THREAD = "NCCL RAS"
"""the name of the thread that answers (ncclSetThreadName in src/ras/ras.cc)"""


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
    if not any(map(_answers_ras, dict.fromkeys(answering))):
        return {}
    return _states(one.pid for one in answer.silent if one.host in here)


def _states(pids: Iterable[int]) -> dict[int, str]:
    rows = {pid: row_of(pid) for pid in pids}
    return {pid: row.state if row else "" for pid, row in rows.items()}


def _answers_ras(pid: int) -> bool:
    folder = f"/proc/{pid}/task"
    try:
        return any(_name(f"{folder}/{thread}/comm") == RAS_THREAD for thread in os.listdir(folder))
    except OSError:
        return False


def _name(path: str) -> str:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""
