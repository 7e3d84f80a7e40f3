"""Ranks that cannot outlive the lease of their launcher, whatever becomes of it.

The end of the lease stands in a page of shared memory, which the link's thread moves on. A process
of its own (lease_guard.py) watches it and holds the one writing end of a pipe. For each rank there
is a reading end that belongs to the rank's process group, with SIGKILL in place of SIGIO: when a
byte comes, or the writing end closes because the guard has ended, the kernel kills the group. No
rank takes part in it: it may be stopped, hold the GIL, or be no Python at all.

A rank starts its command only once all this stands (rank/shim.py waits for it).
"""

from __future__ import annotations

import contextlib
import fcntl
import math
import mmap
import os
import select
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Collection
from pathlib import Path
from typing import IO

from holdfast.rank import heartbeat_page
from holdfast.run.launch.lease_guard import FOR_LIFE
from holdfast.system import kernel_calls

GUARD = str(Path(__file__).with_name("lease_guard.py"))
READY_SECONDS = 30.0
"""for the guard to start, on a machine that is busy with the ranks' start"""
_F_SETSIG = 10
_UNTIL, _STANDS = 0, 1
"""words of the page: when the lease is over, in nanoseconds of CLOCK_BOOTTIME, 0 for never; whether
the ranks that wait may start"""


class RankFence:
    """Of one launcher. `extend` is called by the thread that hears of the lease, the rest by the
    agent's."""

    def __init__(self) -> None:
        self._memory = kernel_calls.memory_file("holdfast-lease")
        os.ftruncate(self._memory, mmap.PAGESIZE)
        self._words = memoryview(mmap.mmap(self._memory, mmap.PAGESIZE)).cast("Q")
        self._lock = threading.Lock()
        """guards what follows"""
        self._until = 0
        self._lifted = False
        self._guard: subprocess.Popen[bytes] | None = None
        self._talk: socket.socket | None = None
        self._readers: list[int] = []
        self._reading = -1

    @property
    def page(self) -> str:
        """For ranks about to start."""
        return heartbeat_page.path_of(self._memory)

    def extend(self, until: float) -> None:
        """Seconds of CLOCK_BOOTTIME at which no rank may be left; inf while this process lives."""
        with self._lock:
            self._until = FOR_LIFE if until == math.inf else int(until * 1e9)
            if not self._lifted:
                self._words[_UNTIL] = self._until

    def lift(self) -> None:
        """No other node may start again while these ranks end: they have all the time."""
        with self._lock:
            self._lifted = True
            self._words[_UNTIL] = 0

    def begin(self) -> None:
        """Before the ranks of a round are started."""
        with self._lock:
            self._lifted = False
            self._words[_UNTIL] = self._until
        self._words[_STANDS] = 0
        self._reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._talk, theirs = socket.socketpair()
        # No signal may end it: a scheduler sends SIGTERM to all processes of a job, and the ranks
        # have their grace time then.
        before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
        try:
            self._guard = subprocess.Popen(
                [sys.executable, "-I", "-S", GUARD, str(self._memory), str(writing)],
                stdin=theirs.fileno(), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL,
                pass_fds=(self._memory, writing), start_new_session=True, env={}, cwd="/",
            )  # fmt: skip
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)
            theirs.close()
            os.close(writing)

    def hold(self, leaders: Collection[int]) -> str:
        """From here on these ranks end with the lease. Answers why not, where the kernel refuses
        it: then the launcher is the only one that can end them."""
        assert self._guard is not None
        assert self._talk is not None
        assert self._guard.stdout is not None
        refused = "" if _answers(self._guard.stdout) else "its process did not start"
        if not refused:
            try:
                for leader in leaders:
                    self._readers.append(self._reader_of(leader))
                socket.send_fds(self._talk, [b"+"], self._readers)
            except BrokenPipeError:
                pass  # it has ended
            except OSError as problem:
                refused = str(problem)
        if not refused and self._guard.poll() is not None:
            # The lease was over before the kernel knew of the ranks, which wait at their start.
            for leader in leaders:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(leader, signal.SIGKILL)
        self._words[_STANDS] = 1
        return refused

    def _reader_of(self, leader: int) -> int:
        """A description of its own of the pipe's end: each has one owner."""
        end = os.open(f"/proc/self/fd/{self._reading}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        try:
            fcntl.fcntl(end, fcntl.F_SETOWN, -leader)
            fcntl.fcntl(end, _F_SETSIG, signal.SIGKILL)
            fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK | os.O_ASYNC)
        except OSError:
            os.close(end)
            raise
        return end

    def release(self) -> None:
        """The ranks are gone, or are to be left alone with what they started."""
        for end in self._readers:
            fcntl.fcntl(end, fcntl.F_SETFL, os.O_NONBLOCK)  # the guard has it, too
            os.close(end)
        self._readers = []
        if self._guard is not None:
            self._guard.kill()
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._guard.wait(READY_SECONDS)
            assert self._guard.stdout is not None
            self._guard.stdout.close()
            self._guard = None
        if self._talk is not None:
            self._talk.close()
            self._talk = None
        if self._reading >= 0:
            os.close(self._reading)
            self._reading = -1


def _answers(guard: IO[bytes]) -> bool:
    """Its timer runs."""
    return bool(select.select([guard], [], [], READY_SECONDS)[0]) and bool(guard.read(1))
