"""`holdfast.phase` and `holdfast.heartbeat`: hints for the launcher; without one, no effect."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from holdfast.rank import own_page

_lock = threading.Lock()
_names: list[tuple[object, str]] = []
_awaited: list[int] = []


def _after_fork() -> None:
    """In a forked child another thread of its parent may have held the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Name what the script does: `with holdfast.phase("evaluation"):`, or as a decorator.

    `holdfast run` shows the name where a rank takes long. The innermost name counts; without
    `holdfast run` it has no effect.

    Args:
        name: in the user's own words.
    """
    mine = (object(), name)
    with _lock:
        _names.append(mine)
        _publish()
    try:
        yield
    finally:
        with _lock:
            _names.remove(mine)  # threads may leave in another order than they came
            _publish()


@contextlib.contextmanager
def waiting_for(rank: int) -> Iterator[None]:
    """This rank waits for that one where neither a flight recorder nor a stack shows it."""
    with _lock:
        _awaited.append(rank)
        _publish()
    try:
        yield
    finally:
        with _lock:
            _awaited.remove(rank)
            _publish()


def _publish() -> None:
    page = own_page.page
    if page is not None:
        page.phase(_names[-1][1] if _names else "", _awaited[-1] if _awaited else None)


def heartbeat() -> None:
    """Tell `holdfast run` that this loop makes progress, where no torch optimizer shows it.

    Each call counts as a step, until an optimizer is seen: from then on its steps count. Without
    `holdfast run` it has no effect.
    """
    page, steps = own_page.page, own_page.steps
    if page is not None and not own_page.optimizer_seen:
        steps.called((0, 0), time.monotonic_ns())
        page.step(steps.count, steps.at, steps.usual)
