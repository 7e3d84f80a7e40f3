"""Become the rank, after asking the kernel to end it with its launcher.

    python -I -S shim.py LAUNCHER_PID PAGE COMMAND [ARGUMENT…]

A launcher killed by SIGKILL cannot clean up: without this its ranks would train on, unseen,
beside those of the next launch. The request survives exec, so it also holds for commands that
are not Python; it is the kernel's, so nothing in the rank can be too busy for it. It speaks of
the *thread* that started us: the launcher starts its ranks from its main thread.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time

PR_SET_PDEATHSIG = 1
FENCE_STANDS = 8
"""where in the page"""
LOOK_AGAIN = 0.005


def main() -> int:
    launcher, page, argv = int(sys.argv[1]), sys.argv[2], sys.argv[3:]
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, int(signal.SIGKILL), 0, 0, 0)
    if os.getppid() != launcher:
        return 128 + signal.SIGKILL  # it died before the request was made
    if page:
        wait_for_fence(page)
    # exec keeps the pid, so the hook knows the rank itself from the processes it starts.
    os.environ["HOLDFAST_RANK_PID"] = str(os.getpid())
    # The script does not need the launchers' secret, and might log it.
    os.environ.pop("HOLDFAST_TOKEN", None)
    # Python ignores these two at its start, and an ignored signal stays ignored across exec.
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)
    signal.signal(signal.SIGXFSZ, signal.SIG_DFL)
    try:
        os.execvp(argv[0], argv)  # noqa: S606 - becoming the rank is its purpose
    except OSError as problem:
        print(f"holdfast> cannot start {argv[0]}: {problem.strerror}", file=sys.stderr)
        return 127 if isinstance(problem, FileNotFoundError) else 126


def wait_for_fence(page: str) -> None:
    """For as long as the launcher lives: a rank that it could not fence must not begin."""
    try:
        descriptor = os.open(page, os.O_RDONLY | os.O_CLOEXEC)
    except OSError:
        return  # no way to look into the launcher's /proc: it will have fenced us in a moment
    while not any(os.pread(descriptor, 8, FENCE_STANDS)):
        time.sleep(LOOK_AGAIN)
    os.close(descriptor)


if __name__ == "__main__":
    sys.exit(main())
