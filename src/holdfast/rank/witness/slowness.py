"""A straggler: a rank whose steps take several times as long, for a while."""

from __future__ import annotations

import time

TIMES = 5
"""as long as the step itself took"""
LEAST = 0.05
"""seconds more, however short the steps are: less is the noise of every healthy job"""

_until = 0.0
_began = 0.0
"""when the step that runs now began"""


def begin(seconds: float) -> None:
    global _until, _began  # noqa: PLW0603 - one process has one pace
    _began = time.monotonic()
    _until = _began + seconds


def after_step() -> None:
    """Called after every step, also of a rank that is not slow."""
    global _began  # noqa: PLW0603
    now = time.monotonic()
    if now < _until:
        time.sleep(extra(now - _began))
        _began = time.monotonic()


def extra(step: float) -> float:
    """Seconds to lose after a step that took so long."""
    return max(LEAST, (TIMES - 1) * step)
