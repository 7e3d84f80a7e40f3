"""The process that ends the ranks of a node when the lease of their launcher is over.

    python -I -S lease_guard.py PAGE PIPE      (descriptors; the launcher at the end of stdin)

A launcher that is stopped, starved or stuck cannot do it itself, nor can a rank whose GIL is held.
Here nothing is needed but to write a byte, or to end: for either the kernel sends SIGKILL to the
process group of every rank (run/launch/rank_fence.py has told it so), stopped ones included. If
this process cannot run either, because the whole node was suspended, a timer of the kernel ends it.
It outlives a launcher that is killed for as long as the lease lasts: what a wrapper started is then
ended as well.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import select
import signal
import socket
import sys
import time

LOOK_AGAIN = 0.1
BACKSTOP = 0.3
"""seconds after the end of the lease in which this process acts itself"""
AFTER_LAUNCHER = 6.0
"""seconds for which ranks may outlive a launcher that is killed, where its lease has no end: what a
wrapper started, and a save that is being finished"""
FOR_LIFE = 2**64 - 1
"""in the page: the lease lasts as long as the launcher lives"""
NAME = b"holdfast-lease"
_NANO = 1_000_000_000
_PR_SET_NAME = 15
_TIMER_ABSTIME = 1


class _Event(ctypes.Structure):
    """sigevent, with notify = SIGEV_SIGNAL."""

    _fields_ = (
        ("value", ctypes.c_void_p),
        ("signal", ctypes.c_int),
        ("notify", ctypes.c_int),
        ("rest", ctypes.c_char * 48),
    )


class _Times(ctypes.Structure):
    """itimerspec, as four numbers."""

    _fields_ = (
        ("every_s", ctypes.c_long),
        ("every_ns", ctypes.c_long),
        ("at_s", ctypes.c_long),
        ("at_ns", ctypes.c_long),
    )


class KernelTimer:
    """SIGKILL to this process at a time of CLOCK_BOOTTIME, which goes on while the machine sleeps
    and while this process is stopped. Where the kernel has none, there is none."""

    def __init__(self) -> None:
        self._libc = ctypes.CDLL(None)
        self._timer = ctypes.c_void_p()
        event = _Event(signal=int(signal.SIGKILL))
        made = self._libc.timer_create(
            time.CLOCK_BOOTTIME, ctypes.byref(event), ctypes.byref(self._timer)
        )
        self._exists = made == 0

    def set(self, at: int) -> None:
        """In nanoseconds; 0 for never."""
        if self._exists:
            times = _Times(0, 0, *divmod(at, _NANO))
            self._libc.timer_settime(self._timer, _TIMER_ABSTIME, ctypes.byref(times), None)


def main() -> None:
    page = memoryview(mmap.mmap(int(sys.argv[1]), mmap.PAGESIZE)).cast("Q")
    pipe, launcher = int(sys.argv[2]), socket.socket(fileno=0)
    ctypes.CDLL(None).prctl(_PR_SET_NAME, NAME, 0, 0, 0)
    timer, armed = KernelTimer(), -1
    lives = True
    while True:
        until = page[0]
        if until == FOR_LIFE and not lives:
            until = page[0] = now() + int(AFTER_LAUNCHER * _NANO)
        if until != armed:
            timer.set(until + int(BACKSTOP * _NANO) if 0 < until < FOR_LIFE else 0)
            if armed < 0:
                os.write(1, b"!")
            armed = until
        left = (until - now()) / _NANO
        if until and left <= 0:
            os.write(pipe, b"!")
            return
        if not lives:
            if not until:
                return  # nothing starts elsewhere
            time.sleep(min(LOOK_AGAIN, left))
        elif _is_readable(launcher, min(LOOK_AGAIN, left) if until else LOOK_AGAIN):
            lives = _receive(launcher)


def now() -> int:
    return time.clock_gettime_ns(time.CLOCK_BOOTTIME)


def _is_readable(launcher: socket.socket, seconds: float) -> bool:
    return bool(select.select([launcher], [], [], seconds)[0])


def _receive(launcher: socket.socket) -> bool:
    """Ends of the pipe, which stay open from here on should the launcher end; whether it lives."""
    try:
        said, *_ = socket.recv_fds(launcher, 1, 253)
    except ConnectionError:
        return False
    return bool(said)


if __name__ == "__main__":
    main()
