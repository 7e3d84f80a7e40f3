"""Enforces the deadlines of one process that has no launcher: `deadline_watcher.py PID FD NAME`.

Reads the page; when a deadline has passed it prints the stacks, then kills the process: SIGABRT,
which leaves a core and makes faulthandler print, and SIGKILL if that was not enough.
"""

from __future__ import annotations

import mmap
import os
import shutil
import signal
import subprocess
import sys
import time

# Started by its path in isolated mode: find the package it belongs to.
sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))))

from holdfast.rank import heartbeat_page
from holdfast.rank.print_line import say

POLL_SECONDS = 0.1
STACKS_SECONDS = 10
GRACE = 30.0
"""for the core of a large process to be written"""


def main() -> int:
    pid, fd, name = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    page = mmap.mmap(fd, heartbeat_page.SIZE)
    while os.getppid() == pid:  # not the parent-death signal: that speaks of a thread only
        passed = heartbeat_page.read_limit(page)
        left = passed[1] - time.monotonic()
        if not passed[1] or left > 0:
            time.sleep(min(POLL_SECONDS, left) if passed[1] else POLL_SECONDS)
            continue
        say(f"deadline {passed[0]!r} passed and {name} (pid {pid}) is still in that section")
        show_stacks(pid)
        if heartbeat_page.read_limit(page) != passed:
            say(f"section {passed[0]!r} ended meanwhile, so the process is not killed")
            continue
        say(f"killing pid {pid} by SIGABRT")
        end(pid)
    return 0


def end(pid: int) -> None:
    os.kill(pid, signal.SIGABRT)
    os.kill(pid, signal.SIGCONT)  # a stopped process takes no signal before it continues
    deadline = time.monotonic() + GRACE
    while os.getppid() == pid and time.monotonic() < deadline:
        time.sleep(POLL_SECONDS)
    if os.getppid() == pid:
        os.kill(pid, signal.SIGKILL)


def show_stacks(pid: int) -> None:
    """By py-spy, which needs nothing from the process; else faulthandler will, at the signal."""
    beside = os.path.join(os.path.dirname(sys.executable), "py-spy")
    tool = beside if os.path.exists(beside) else shutil.which("py-spy")
    if tool is None:
        return
    try:
        done = subprocess.run(
            [tool, "dump", "--nonblocking", "--pid", str(pid)],
            capture_output=True,
            timeout=STACKS_SECONDS,
            check=False,
        )
        sys.stderr.write(done.stdout.decode("utf-8", "replace"))
    except (OSError, subprocess.TimeoutExpired) as problem:
        say(f"py-spy could not show the stacks: {problem}")


if __name__ == "__main__":
    sys.exit(main())
