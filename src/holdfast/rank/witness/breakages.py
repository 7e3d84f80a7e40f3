"""What a rank does to itself in a drill, by name: what cannot be done to it from outside."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable
from typing import NamedTuple

FOREVER = 24 * 3600.0
"""seconds: as long as a hang lasts where the drill says nothing"""


class BreakageOrder(NamedTuple):
    how: str
    seconds: float
    step: int
    waits: bool = False
    """first, until the drill has done its part from outside"""


class InjectedFault(RuntimeError):  # noqa: N818 - as it is called in a traceback
    """Raised by `holdfast drill` in the script, as a bug in it would be."""


def break_by_exception(order: BreakageOrder) -> None:
    """An exception that the script does not expect."""
    raise InjectedFault(f"injected by holdfast drill after step {order.step}")


def break_by_exit(_order: BreakageOrder) -> None:
    """The script ends as if it were done, while the others train."""
    sys.exit(0)


def break_by_exit_at_once(_order: BreakageOrder) -> None:
    """The same, without anything that Python does at its end."""
    os._exit(0)


def break_by_hang(order: BreakageOrder) -> None:
    """Waits in Python for something that does not come."""
    _sleep_in_python(order.seconds or FOREVER)


def _sleep_in_python(seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        time.sleep(0.1)


BREAKAGES: dict[str, Callable[[BreakageOrder], None]] = {
    "raise": break_by_exception,
    "exit": break_by_exit,
    "exit-now": break_by_exit_at_once,
    "hang": break_by_hang,
}
