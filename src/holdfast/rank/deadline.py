"""`holdfast.deadline`: ends this process when a section takes too long, from outside of it.

The section may sit in C with the GIL held, or be stopped: nothing inside it could keep its own
limit. So the limit is written on this process's page, and the launcher acts when it has passed:
stacks first, then the signal. Without a launcher a small process of our own does.
"""

from __future__ import annotations

import atexit
import contextlib
import faulthandler
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator

from holdfast.rank import heartbeat_page, own_page, prctl
from holdfast.rank.delivery import is_off
from holdfast.rank.durations import Duration, in_seconds

_WATCHER = os.path.join(os.path.dirname(os.path.abspath(__file__)), "deadline_watcher.py")

_lock = threading.Lock()
_active: list[tuple[float, str]] = []
_watcher: subprocess.Popen[bytes] | None = None


def _after_fork() -> None:
    """In a forked child: the deadlines, and the process that enforces them, are its parent's."""
    global _lock, _watcher  # noqa: PLW0603
    _lock = threading.Lock()
    _watcher = None
    _active.clear()


os.register_at_fork(after_in_child=_after_fork)


@contextlib.contextmanager
def deadline(name: str, seconds: Duration) -> Iterator[None]:
    """Kill this process (SIGABRT, its stacks shown first) if the section takes longer.

    `with holdfast.deadline("forward", seconds=60):` is enforced from outside, by `holdfast run` or
    else by a small process of its own, so it works also where Python itself is stuck.

    Args:
        name: of the section, for the report.
        seconds: how long it may take: seconds, a timedelta, or a text such as "5m".

    Raises:
        ConfigError: `seconds` is not a duration greater than 0.
    """
    allowed = in_seconds("seconds", seconds)
    mine = (time.monotonic() + allowed, name)
    with _lock:
        _ensure_watcher()
        _active.append(mine)
        _publish()
    try:
        yield
    finally:
        with _lock:
            if mine in _active:  # else this is a child, forked inside the section
                _active.remove(mine)
            _publish()


def _publish() -> None:
    """Of several deadlines, the first one to pass is enforced."""
    if own_page.page is not None:
        until, name = min(_active, default=(0.0, ""))
        own_page.page.limit(name, until)


def _ensure_watcher() -> None:
    watched = own_page.page is not None if _watcher is None else _watcher.poll() is None
    if watched or is_off(os.environ):
        return
    try:
        _start_watcher()
    except Exception as problem:  # noqa: BLE001 - a deadline that cannot be enforced must not end a job
        own_page.complain(problem)


def _start_watcher() -> None:
    global _watcher  # noqa: PLW0603 - one process has one watcher
    # Where py-spy is missing, or may not look: the signal itself then prints every thread.
    if not faulthandler.is_enabled():
        faulthandler.enable()
    fd, buffer = heartbeat_page.create()
    try:
        name = f"rank {os.environ['RANK']}" if "RANK" in os.environ else "this process"
        _watcher = subprocess.Popen(
            [sys.executable, "-I", _WATCHER, str(os.getpid()), str(fd), name],
            pass_fds=[fd],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            start_new_session=True,  # Ctrl-C is for the script
        )
    finally:
        os.close(fd)
    atexit.register(_dismiss, _watcher, os.getpid())
    prctl.let_trace(_watcher.pid)
    own_page.adopt(heartbeat_page.HeartbeatPage(buffer))


def _dismiss(watcher: subprocess.Popen[bytes], pid: int) -> None:
    if os.getpid() == pid:
        watcher.kill()
        watcher.wait()
