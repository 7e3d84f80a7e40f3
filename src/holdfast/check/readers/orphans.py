"""Training processes whose launcher is gone.

A launcher marks the environment of the ranks it starts. When it dies, the kernel gives its
ranks to the next reaper up the tree: pid 1, or a session's own init.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import NamedTuple

from holdfast.analysis.machine import Orphan, Unread
from holdfast.system.process import describe
from holdfast.system.process_table import Row

STRONG = "TORCHELASTIC_RUN_ID"
"""set by torchelastic for its ranks, and by nobody else"""
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

    row: Row
    mark: str
    run_id: str
    rank: int | None
    master: str
    """address and port of its store: two jobs on one machine never share them"""


def find_orphans(table: Mapping[int, Row]) -> tuple[Orphan, ...]:
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


def _marked(row: Row) -> Marked | None:
    if row.is_kernel or row.pid == os.getpid():
        return None
    environment = _environment(row.pid)
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


def _environment(pid: int) -> dict[str, str]:
    """Empty where no mark is in it, or where it may not be read: another user's process is
    not ours to judge."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            content = file.read()
    except OSError:
        return {}
    if WEAK.encode() not in content and STRONG.encode() not in content:
        return {}  # a busy machine has thousands of processes: take apart only what is of interest
    pairs = (item.partition("=") for item in content.decode(errors="replace").split("\0"))
    return {name: value for name, _, value in pairs}


def _is_adopted(row: Row, table: Mapping[int, Row]) -> bool:
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


def _is_launcher(parent: Row) -> bool:
    """torchrun may itself be pid 1 of a container, with healthy children.

    Every torch launcher has torch loaded, which its memory map shows. Where the map may not be
    read we believe the command line, and any Python program may be a launcher.
    """
    try:
        with open(f"/proc/{parent.pid}/maps", encoding="utf-8", errors="replace") as file:
            return "libtorch" in file.read()
    except OSError:
        command = _command(parent.pid)
        return "python" in command or any(name in command for name in LAUNCHERS)


def _command(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/cmdline", encoding="utf-8", errors="replace") as file:
            return file.read()
    except OSError:
        return ""


def _is_daemon_of_a_living_rank(candidate: Marked, cared_for: list[Marked]) -> bool:
    """A rank may start a service that detaches itself: it has all its marks, and is younger."""
    return any(m[1:] == candidate[1:] and m.row.started <= candidate.row.started for m in cared_for)


def _orphan(found: Marked, table: Mapping[int, Row]) -> Orphan | None:
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
