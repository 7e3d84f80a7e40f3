"""SIGTERM means: save and exit, within the grace time. Noted here, acted on at a sync point.

A handler in Python runs only when the main thread comes back from C. A rank that waits for a peer
that will never come would so ignore the signal, where without us it had ended at once. Therefore
a thread hears of it as well (Python writes to a descriptor in the C handler), and ends a rank
whose main thread does not move.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping
from types import FrameType
from typing import Any

from holdfast.rank.delivery import GRACE

TORCHRUNS = 30.0
"""seconds that torchrun gives, and Kubernetes and Slurm too, where nobody says"""
SHARE = 0.8
"""of the grace time that we use: the rest is for the end itself"""
STANDS_STILL = 0.5
"""seconds in which a main thread that runs shows another line, at least"""
TIMES_PACE = 4
LOOK_AGAIN = 0.05


def grace_time(environment: Mapping[str, str]) -> float:
    try:
        return max(0.0, float(environment.get(GRACE, TORCHRUNS)))
    except ValueError:
        return TORCHRUNS


class Grace:
    """While open, this process hears SIGTERM and goes on; `told` says that it has."""

    def __init__(self, *, seconds: float, pace: Callable[[], float]) -> None:
        """`pace`: seconds that a step takes here."""
        self.seconds = seconds
        self.told = False
        self.told_at = 0.0
        self._pace = pace
        self._former: Any = None
        self._open = self._at_fork = False
        self._ends: tuple[int, int] = (-1, -1)
        self._pid = os.getpid()
        self._answered = threading.Event()

    def open(self) -> bool:
        """False where a handler cannot be set: not in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self.told = False
        self._answered.clear()
        self._former = signal.signal(signal.SIGTERM, self._hear)
        self._open = True
        if not self._at_fork:
            self._at_fork = True
            os.register_at_fork(after_in_child=self._forget)
        self._listen()
        return True

    def close(self) -> bool:
        """As it was before. Whether it was told meanwhile: then it still has to end."""
        if not self._open or os.getpid() != self._pid:
            return False
        self._open = False
        # Whoever has set another handler since meant it.
        if signal.getsignal(signal.SIGTERM) == self._hear:
            signal.signal(signal.SIGTERM, self._former or signal.SIG_DFL)
        self._answered.set()
        self._hang_up()
        return self.told

    def hear(self) -> None:
        """Another rank was told, and the job ends with it: the time is counted from now."""
        self._answered.set()
        self._hear(0, None)

    def end(self) -> None:
        """Saved: now the signal does what it would have done without us."""
        self.close()
        os.kill(os.getpid(), signal.SIGTERM)

    def answered(self) -> None:
        """The main thread has seen `told`: the thread has no more to do."""
        self._answered.set()

    def left(self) -> float:
        """Seconds to spend on a save; without end while nobody has asked for ours."""
        if not self.told:
            return math.inf
        return max(0.0, self.told_at + SHARE * self.seconds - time.monotonic())

    # --- hearing -------------------------------------------------------------------------------

    def _hear(self, _number: int, _frame: FrameType | None) -> None:
        # A second one says nothing new: a scheduler tells every process, the launcher its ranks.
        if not self.told:
            self.told_at = time.monotonic()
            self.told = True

    def _listen(self) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(reading, True)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before >= 0:  # somebody's event loop: it was here first
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            os.close(reading)
            os.close(writing)
            return
        self._ends = (reading, writing)
        threading.Thread(
            target=self._attend, args=(reading,), name="holdfast-grace", daemon=True
        ).start()

    def _hang_up(self) -> None:
        _reading, writing = self._ends
        if writing < 0:
            return
        self._ends = (-1, -1)
        current = signal.set_wakeup_fd(-1)
        if current not in (writing, -1):
            signal.set_wakeup_fd(current)
        os.close(writing)  # the thread reads an end, closes its own and goes

    def _forget(self) -> None:
        """In a forked child: it has no checkpoint, and shall end when it is told to.

        A group of its own: a launcher tells the whole group, and a loader's worker that ends at
        once takes its rank with it ('DataLoader worker is killed'), before anything is saved.
        """
        with contextlib.suppress(OSError, ValueError):
            if not self._open:
                return
            self._open = False
            os.setpgid(0, 0)
            if signal.getsignal(signal.SIGTERM) == self._hear:
                signal.signal(signal.SIGTERM, self._former or signal.SIG_DFL)
            signal.set_wakeup_fd(-1)
            for end in self._ends:
                os.close(end)

    # --- the thread ----------------------------------------------------------------------------

    def _attend(self, reading: int) -> None:
        # To the end: other signals are told here as well, and a pipe without a reader complains.
        with open(reading, "rb", buffering=0) as pipe:
            while heard := pipe.read(64):
                if signal.SIGTERM in heard:
                    self._end_if_it_stands_still(time.monotonic())

    def _end_if_it_stands_still(self, since: float) -> None:
        still_for = max(STANDS_STILL, TIMES_PACE * self._pace())
        place, moved_at = _place(), since
        while not self._answered.wait(LOOK_AGAIN):
            now = time.monotonic()
            here = _place()
            if here != place:
                place, moved_at = here, now
            if now - moved_at >= still_for or now - since >= SHARE * self.seconds:
                break
        else:
            return
        if callable(self._former):
            return  # a function of the script's own is to run: only its main thread can
        line = "holdfast: SIGTERM, and nothing moves here: rank ends without a save\n"
        with contextlib.suppress(OSError):
            os.write(2, line.encode())
        # Python sets handlers from its main thread only, which does not answer.
        ctypes.CDLL(None).signal(int(signal.SIGTERM), ctypes.c_void_p(0))
        os.kill(os.getpid(), signal.SIGTERM)


def _place() -> object:
    """Where the main thread is: any step of it shows another."""
    frame = sys._current_frames().get(threading.main_thread().ident or 0)  # noqa: SLF001
    return (id(frame), frame.f_lasti) if frame is not None else None
