"""What the launcher's own process needs before it starts anything."""

from __future__ import annotations

import resource
import signal
from types import FrameType

from holdfast.run.launch.launcher_signals import FOR_RANKS

ENOUGH_FILES = 65536
"""not the hard limit: where it is a billion, programs that close every number up to it take
minutes to start"""


def reset_signals() -> None:
    """As a launcher must have them, whatever started it.

    With SIGCHLD ignored the kernel forgets how children ended. SIGUSR1 and SIGUSR2 are for the
    ranks; until there are any they must not end us. A handler, unlike SIG_IGN, is not inherited.
    """
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    for number in FOR_RANKS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, _nothing)


def _nothing(_number: int, _frame: FrameType | None) -> None:
    pass


def raise_open_files() -> tuple[int, int] | None:
    """Many ranks and loaders need more than the 1024 a shell gives: the soft limit before and
    after, None where it stays."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = enough_files(soft, hard)
    if wanted is None:
        return None
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    except (OSError, ValueError):  # the kernel's own limit (fs.nr_open) was lowered since
        return None
    return soft, wanted


def enough_files(soft: int, hard: int) -> int | None:
    """The soft limit to set; None where it is high enough. Pure."""
    unlimited = resource.RLIM_INFINITY
    wanted = ENOUGH_FILES if hard == unlimited else min(hard, ENOUGH_FILES)
    return None if soft == unlimited or soft >= wanted else wanted
