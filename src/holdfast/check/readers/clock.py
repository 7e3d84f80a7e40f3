"""Is the clock kept in step by NTP or PTP? The kernel knows: adjtimex, asked without changing."""

from __future__ import annotations

import ctypes
import errno
import os

from holdfast.analysis.machine import ClockSync, Plan, Unread

STA_UNSYNC = 0x40
LARGEST_ERROR = 16_000_000
"""µs. The kernel starts here, and an unsynchronised clock drifts back here within nine hours
(500 ppm), which sets STA_UNSYNC (kernel/time/ntp.c)."""


class Timex(ctypes.Structure):
    """struct timex of <sys/timex.h>."""

    _fields_ = [
        ("modes", ctypes.c_uint),
        ("offset", ctypes.c_long),
        ("freq", ctypes.c_long),
        ("maxerror", ctypes.c_long),
        ("esterror", ctypes.c_long),
        ("status", ctypes.c_int),
        ("constant", ctypes.c_long),
        ("precision", ctypes.c_long),
        ("tolerance", ctypes.c_long),
        ("seconds", ctypes.c_long),
        ("microseconds", ctypes.c_long),
        ("tick", ctypes.c_long),
        ("rest", ctypes.c_long * 32),  # pulse-per-second figures, TAI offset, padding
    ]


def read_clock(_plan: Plan) -> ClockSync | Unread:
    try:
        answer = ask_kernel()
    except OSError as problem:
        if problem.errno in (errno.EPERM, errno.ENOSYS):
            return Unread(why="the kernel does not tell (most often a container's seccomp profile)")
        raise
    return sync_state(status=answer.status, max_error=answer.maxerror)


def ask_kernel() -> Timex:
    libc = ctypes.CDLL(None, use_errno=True)
    answer = Timex(modes=0)  # 0: change nothing
    if libc.adjtimex(ctypes.byref(answer)) == -1:
        code = ctypes.get_errno()
        raise OSError(code, f"adjtimex: {os.strerror(code)}")
    return answer


def sync_state(*, status: int, max_error: int) -> ClockSync:
    """chrony leaves STA_UNSYNC on unless `rtcsync` is set, and yet keeps the clock: then the
    error bound tells, since a daemon keeps it below the kernel's largest.
    """
    kept = not status & STA_UNSYNC or max_error < LARGEST_ERROR
    return ClockSync(synchronised=kept, max_error=max_error / 1e6)
