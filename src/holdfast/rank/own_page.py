"""This process's own page, if it has one, and the one place where the hook complains."""

from __future__ import annotations

import os

from holdfast.rank.heartbeat_page import HeartbeatPage
from holdfast.rank.print_line import say
from holdfast.rank.step_counter import StepCounter

page: HeartbeatPage | None = None
"""None without a launcher of ours: plain python or torchrun, HOLDFAST=off, a forked child"""
steps = StepCounter()
optimizer_seen = False
_complained = False


def adopt(new: HeartbeatPage) -> None:
    """From now on this process writes here; a child forked from it does not."""
    global page  # noqa: PLW0603 - one process has one page
    if page is None:
        os.register_at_fork(after_in_child=forget)
    page = new
    page.announce(os.getpid())


def forget() -> None:
    """A forked child shares the mapping: a DataLoader worker must not speak for its rank."""
    global page  # noqa: PLW0603
    page = None


def complain(problem: BaseException) -> None:
    """Once a process: the hook is a guest here."""
    global _complained  # noqa: PLW0603
    if _complained:
        return
    _complained = True
    why = f"{type(problem).__name__}: {problem}"
    say(f"monitoring is disabled in this rank, training continues: {why}")
