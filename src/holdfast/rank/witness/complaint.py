"""The one place where the witness says that it failed: once a process, and training continues."""

from __future__ import annotations

from collections.abc import Callable

from holdfast.rank.print_line import say

_complained = False


def complain(problem: BaseException) -> None:
    global _complained  # noqa: PLW0603 - once a process
    if not _complained:
        _complained = True
        why = f"{type(problem).__name__}: {problem}"
        say(f"this rank is not fully recorded for the drill, training continues: {why}")


def safely(work: Callable[[], object]) -> None:
    try:
        work()
    except Exception as problem:  # noqa: BLE001 - nothing of ours may break a script
        complain(problem)
