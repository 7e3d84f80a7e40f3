"""A straggler: a rank whose steps take several times as long, for a while."""

from __future__ import annotations

import os
import time

TIMES = 5
"""as long as the step itself took"""
LEAST = 0.3
"""seconds more, however short the steps are: a job that has 20 steps to go is over before anybody
has looked, where they take milliseconds"""

_until = 0.0
_go = ""
_began = 0.0
"""when the step that runs now began"""


def begin(seconds: float, go: str) -> None:
    """`go`: a file that ends it."""
    global _until, _began, _go  # noqa: PLW0603 - one process has one pace
    _began, _go = time.monotonic(), go
    _until = _began + seconds


def after_step() -> None:
    """Called after every step, also of a rank that is not slow."""
    global _began  # noqa: PLW0603
    now = time.monotonic()
    if now < _until and not os.path.exists(_go):
        time.sleep(extra(now - _began))
        _began = time.monotonic()


def extra(step: float) -> float:
    """Seconds to lose after a step that took so long."""
    return max(LEAST, (TIMES - 1) * step)
