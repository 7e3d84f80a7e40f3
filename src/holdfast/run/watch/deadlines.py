"""Ends the ranks whose `holdfast.deadline` has passed, by SIGABRT."""

from __future__ import annotations

import contextlib
import os
import signal
from collections.abc import Iterable

PATIENCE = 10.0
"""seconds for a rank to show its stacks, leave its core and go"""


def abort(pids: Iterable[int]) -> None:
    """SIGABRT: a core is left, and faulthandler shows every thread."""
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGABRT)
            os.kill(pid, signal.SIGCONT)  # a stopped process takes no signal before it continues
