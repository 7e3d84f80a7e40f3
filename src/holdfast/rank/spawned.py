"""Processes that a rank starts by multiprocessing and that form a group of their own (`mp.spawn`).

They are the ranks of the job, and the process that the launcher started only waits for them. A
forked one has the hook already; a spawned one is a new Python that inherits nothing, so its
command line brings the hook along. It stays idle until the process enters init_process_group: then
it takes the page of that number, beside that of its parent. Loader workers never do.
"""

from __future__ import annotations

import functools
import os
from collections.abc import Callable
from typing import Any

from holdfast.rank import heartbeat_page, own_page, prctl
from holdfast.rank.delivery import PACKAGE, member_file

_parent: dict[str, str] = {}
"""what the hook of the rank was given"""
_parent_pid = 0
_watch_this: Callable[[str, str], None] | None = None
"""starts the rest of the hook in this process: its words and its socket"""


def remember(said: dict[str, str], watch_this: Callable[[str, str], None]) -> None:
    global _parent_pid, _watch_this
    _parent.update(said)
    _parent_pid, _watch_this = int(said["pid"]), watch_this


def follow() -> None:
    """Whatever multiprocessing spawns from here gets the hook."""
    from multiprocessing import spawn  # noqa: PLC0415 - torch has imported multiprocessing by now

    command_line: Callable[..., list[str]] = spawn.get_command_line

    @functools.wraps(command_line)
    def with_the_hook(**named: Any) -> list[str]:
        line = command_line(**named)
        try:
            at = line.index("-c") + 1
            line[at] = f"{_program()}\n{line[at]}"
        except Exception as problem:  # noqa: BLE001
            own_page.complain(problem)
        return line

    spawn.get_command_line = with_the_hook


def _program() -> str:
    """Never fails: a process without a hook is only not seen."""
    return (
        "try:\n"
        " import sys\n"
        f" exec(open({os.path.join(PACKAGE, 'rank', 'site', 'spawned_child.py')!r}).read(),"
        f" {{'SAID': {_parent!r}, 'PACKAGE': {PACKAGE!r}}})\n"
        "except Exception: pass"
    )


def adopt(rank: int) -> None:
    """This process enters a group as that rank: it gets the page of that number, unless it is a
    rank that the launcher started itself."""
    if not _parent or os.getpid() == _parent_pid or own_page.page is not None:
        return
    buffer = heartbeat_page.attach_member(_parent["page"], rank)
    if buffer is None or _watch_this is None:
        return
    page = heartbeat_page.HeartbeatPage(buffer)
    own_page.adopt(page)
    page.torch_imported()
    prctl.let_trace(int(_parent["launcher"]))
    _watch_this(member_file(_parent["words"], rank), member_file(_parent["socket"], rank))
