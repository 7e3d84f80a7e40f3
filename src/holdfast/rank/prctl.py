"""The few requests to the kernel that Python has no function for."""

from __future__ import annotations

import ctypes

_PR_SET_NAME = 15
_PR_SET_PTRACER = 0x59616D61


def name_this_thread(name: str) -> None:
    ctypes.CDLL(None).prctl(_PR_SET_NAME, name.encode(), 0, 0, 0)


def let_trace(pid: int) -> None:
    """Where Yama lets only ancestors trace, let this process and its descendants do it too.

    A kernel without Yama refuses the request, and has no need of it.
    """
    ctypes.CDLL(None).prctl(_PR_SET_PTRACER, ctypes.c_ulong(pid), 0, 0, 0)
