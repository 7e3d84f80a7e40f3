"""`holdfast.phase` and `holdfast.beat`: hints for whoever watches. Without one they do nothing."""

from __future__ import annotations

import contextlib
import os
import threading
import time
from collections.abc import Iterator

from holdfast.rank import own_page

_lock = threading.Lock()
_names: list[tuple[object, str]] = []


def _start_anew() -> None:
    """In a forked child another thread of its parent may have held the lock."""
    global _lock  # noqa: PLW0603
    _lock = threading.Lock()


os.register_at_fork(after_in_child=_start_anew)


@contextlib.contextmanager
def phase(name: str) -> Iterator[None]:
    """Name what the script is about to do: `with holdfast.phase("evaluation"):`.

    Also a decorator. Named pauses are told by their name; the innermost name counts.
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


def _publish() -> None:
    page = own_page.page
    if page is not None:
        page.phase(_names[-1][1] if _names else "")


def beat() -> None:
    """Say 'this loop goes on', where no torch optimizer says it.

    Each call counts as a step, until an optimizer is seen: from then on its calls do.
    """
    page, steps = own_page.page, own_page.steps
    if page is not None and not own_page.optimizer_seen:
        steps.called(0, time.monotonic_ns())
        page.step(steps.count, steps.at, steps.usual)
