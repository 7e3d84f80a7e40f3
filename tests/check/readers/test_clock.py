"""The kernel's own word on the clock, and what a seccomp profile makes of it."""

from __future__ import annotations

import ctypes
import errno
import platform
import struct
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import ClockSync, Unread
from holdfast.check.readers import clock
from tests.check.readers.trees import elsewhere
from tests.faults.machines import a_plan

CALLS = {"x86_64": (159, 305), "aarch64": (171, 266)}
"""numbers of adjtimex and clock_adjtime; glibc uses the second for both"""
PR_SET_SECCOMP, PR_SET_NO_NEW_PRIVS, SECCOMP_MODE_FILTER = 22, 38, 2
SECCOMP_RET_ERRNO, SECCOMP_RET_ALLOW = 0x00050000, 0x7FFF0000


def test_the_kernels_structure_is_read_at_the_right_places() -> None:
    """The wall clock and the length of a tick lie behind everything we use."""
    answer = clock.ask_kernel()
    assert abs(answer.seconds - time.time()) < 5
    assert 9000 <= answer.tick <= 11000  # what adjtimex allows at 100 ticks a second
    assert 0 <= answer.maxerror <= clock.LARGEST_ERROR


def test_the_real_clock() -> None:
    found = clock.read_clock(a_plan())
    assert isinstance(found, ClockSync)
    assert 0 <= found.max_error <= 16


class Program(ctypes.Structure):
    _fields_ = [("length", ctypes.c_ushort), ("filter", ctypes.c_char_p)]


def refuse(calls: tuple[int, ...], code: int) -> None:
    """Install a seccomp filter on this process, as container runtimes do."""
    load, jump_if_equal, end = 0x20, 0x15, 0x06
    steps = [(load, 0, 0, 0)]
    steps += [(jump_if_equal, len(calls) - place, 0, call) for place, call in enumerate(calls)]
    steps += [(end, 0, 0, SECCOMP_RET_ALLOW), (end, 0, 0, SECCOMP_RET_ERRNO | code)]
    program = Program(len(steps), b"".join(struct.pack("HBBI", *step) for step in steps))
    libc = ctypes.CDLL(None)
    assert libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
    assert libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, ctypes.byref(program)) == 0


@pytest.mark.parametrize("code", [errno.EPERM, errno.ENOSYS])
def test_a_container_that_forbids_the_question(code: int) -> None:
    calls = CALLS.get(platform.machine())
    if calls is None:
        pytest.skip("the numbers of the calls are known for x86_64 and aarch64 only")

    def confined() -> ClockSync | Unread:
        refuse(calls, code)
        return clock.read_clock(a_plan())

    assert "seccomp" in elsewhere(confined, Unread).why


@pytest.mark.parametrize(
    ("status", "max_error", "synchronised"),
    [
        (0x2001, 25_000, True),
        (0x40, 16_000_000, False),  # no daemon keeps it
        (0x40, 17_288, True),  # chrony without rtcsync
    ],
)
def test_who_counts_as_synchronised(status: int, max_error: int, synchronised: bool) -> None:
    found = clock.sync_state(status=status, max_error=max_error)
    assert found == ClockSync(synchronised=synchronised, max_error=max_error / 1e6)


@given(st.integers(0, 0xFFFF), st.integers(0, clock.LARGEST_ERROR))
def test_without_the_flag_it_is_always_synchronised(status: int, max_error: int) -> None:
    assert clock.sync_state(status=status & ~clock.STA_UNSYNC, max_error=max_error).synchronised
