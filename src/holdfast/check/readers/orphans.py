"""Training processes whose launcher is gone.

A launcher marks the environment of the ranks it starts. When it dies, the kernel gives its
ranks to the next reaper up the tree: pid 1, or a session's own init.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.analysis.machine import Orphan, Unread
from holdfast.system import proc
from holdfast.system.proc import ProcessRow
from holdfast.system.process import describe

STRONG = "TORCHELASTIC_RUN_ID"
"""set by torchelastic for its ranks, and by nothing else"""
WEAK = "LOCAL_RANK"
"""other launchers set it together with one of COMPANIONS; people set it alone, by hand"""
COMPANIONS = ("LOCAL_WORLD_SIZE", "GROUP_RANK")

REAPERS = frozenset(
    {"systemd", "init", "tini", "dumb-init", "docker-init", "catatonit", "conmon", "s6-svscan"}
    | {"containerd-shim"}
)
"""programs that adopt orphans without being pid 1 (/proc does not tell who is a subreaper)"""
LAUNCHERS = ("torchrun", "torch.distributed", "accelerate", "deepspeed", "horovodrun", "holdfast")


class Marked(NamedTuple):
    """A process that a launcher started, or a descendant of one."""

    row: ProcessRow
    mark: str
    run_id: str
    rank: int | None
    master: str
    """address and port of its store: two jobs on one machine never share them"""


def find_orphans(table: Mapping[int, ProcessRow]) -> tuple[Orphan, ...]:
    marked = {row.pid: found for row in table.values() if (found := _marked(row))}
    # A loader worker's parent is its rank: only the topmost of each family is of interest.
    tops = [m for m in marked.values() if m.row.parent not in marked]
    alone = [m for m in tops if _is_adopted(m.row, table)]
    cared_for = [m for m in tops if m not in alone]
    return tuple(
        orphan
        for m in alone
        if not _is_daemon_of_a_living_rank(m, cared_for) and (orphan := _orphan(m, table))
    )


def _marked(row: ProcessRow) -> Marked | None:
    if row.is_kernel or row.pid == os.getpid():
        return None
    # Another user's process, which may not be read, is not ours to judge.
    environment = proc.environment(row.pid, only_with=(WEAK, STRONG))
    if STRONG in environment:
        mark = STRONG
    elif WEAK in environment and any(name in environment for name in COMPANIONS):
        mark = WEAK
    else:
        return None
    rank = environment.get("RANK", "")
    number = int(rank) if rank.isascii() and rank.isdigit() else None
    master = ":".join(environment.get(name, "") for name in ("MASTER_ADDR", "MASTER_PORT"))
    return Marked(row, mark, environment.get(STRONG, ""), number, master)


def _is_adopted(row: ProcessRow, table: Mapping[int, ProcessRow]) -> bool:
    """Whether its parent took it over, rather than started it.

    A child that a shell or a script as pid 1 started by itself is in its parent's session;
    one that came from a dead launcher is in the session of that launcher, or in its own.
    """
    parent = table.get(row.parent)
    if parent is None:
        # Where /proc hides the processes of others (hidepid), pid 1 is missing: it belongs to
        # another user, so it did not start a rank of this one.
        return row.parent == 1
    if not (parent.pid == 1 or parent.name in REAPERS):
        return False
    return row.session != parent.session and not _is_launcher(parent)


def _is_launcher(parent: ProcessRow) -> bool:
    """torchrun may itself be pid 1 of a container, with healthy children.

    Every torch launcher has torch loaded, which its memory map shows. Where the map may not be
    read we believe the command line, and any Python program may be a launcher.
    """
    try:
        return "libtorch" in proc.maps(parent.pid)
    except OSError:
        command = _command(parent.pid)
        return "python" in command or any(name in command for name in LAUNCHERS)


def _command(pid: int) -> str:
    try:
        return " ".join(proc.arguments(pid))
    except OSError:
        return ""


def _is_daemon_of_a_living_rank(candidate: Marked, cared_for: list[Marked]) -> bool:
    """A rank may start a service that detaches itself: it has all its marks, and is younger."""
    return any(m[1:] == candidate[1:] and m.row.started <= candidate.row.started for m in cared_for)


def _orphan(found: Marked, table: Mapping[int, ProcessRow]) -> Orphan | None:
    process = describe(found.row.pid)
    if isinstance(process, Unread):
        return None  # it ended while we looked
    parent = table.get(found.row.parent)
    name = parent.name if parent else "hidden from this user"
    return Orphan(
        process=process,
        rank=found.rank,
        run_id=found.run_id,
        sign=f"{found.mark} is set and its parent is pid {found.row.parent} ({name})",
    )
