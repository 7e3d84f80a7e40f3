"""SIGTERM means: save and exit, within the grace time. Noted here, acted on at a sync point.

So does SIGINT under torchrun or `holdfast run`: there it is the launcher that passes a Ctrl-C on. A
process that has the terminal to itself keeps Python's KeyboardInterrupt.

The next `ckpt.step()` may be far: the rank evaluates, or waits in a barrier for one that does. It
has the whole usable share of the grace time to get there. A handler in Python runs only when the
main thread comes back from C. A rank that waits for a peer that will never come would so ignore the
signal, where without us it would exit at once. So a thread is notified as well (Python writes to a
descriptor in the C handler). It ends the rank when that time is over, or at once where a peer is
known to be gone or the launcher has a verdict: then no save can be whole.
"""

from __future__ import annotations

import contextlib
import ctypes
import math
import os
import signal
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from types import FrameType
from typing import Any

from holdfast.rank.delivery import GRACE
from holdfast.rank.events import save_is_hopeless
from holdfast.rank.print_line import say

DEFAULT_GRACE = 30.0
"""seconds that torchrun, Kubernetes and Slurm give unless told otherwise"""
USABLE_SHARE = 0.8
"""of the grace time for a save: the rest is for the exit itself"""
SAID_AFTER = 1.0
"""seconds after which a line says what is waited for"""
LOOK_SECONDS = 0.25
"""between two looks for peers that are gone"""
POLL_SECONDS = 0.05


TORCHS_GRACE = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
LAUNCHED = "TORCHELASTIC_RUN_ID"
"""set in every rank that an elastic launcher starts, each in a session of its own"""


def grace_time(environment: Mapping[str, str]) -> float:
    try:
        said = environment.get(GRACE) or environment.get(TORCHS_GRACE) or DEFAULT_GRACE
        return max(0.0, float(said))
    except ValueError:
        return DEFAULT_GRACE


def stop_signals(environment: Mapping[str, str]) -> tuple[signal.Signals, ...]:
    """Those that mean: save and exit."""
    return (signal.SIGTERM, signal.SIGINT) if LAUNCHED in environment else (signal.SIGTERM,)


class SigtermGrace:
    """While open, these signals do not end this process; `received` says that one came."""

    def __init__(
        self,
        *,
        seconds: float,
        signals: Sequence[signal.Signals] = (signal.SIGTERM,),
        missing_peer: Callable[[], str] = str,
        is_quiet: bool = False,
    ) -> None:
        """`missing_peer`: names a rank that has exited, '' if none has; it may take long.
        `is_quiet`: another rank says what is waited for.
        """
        self.seconds = seconds
        self.signal = signal.SIGTERM
        """the one that came, or SIGTERM"""
        self.received = False
        self.received_at = 0.0
        self._missing_peer, self._is_quiet = missing_peer, is_quiet
        self._missing = ""
        self._signals = signals
        self._former: dict[int, Any] = {}
        self._open = self._at_fork = False
        self._ends: tuple[int, int] = (-1, -1)
        self._pid = os.getpid()
        self._answered = threading.Event()

    def open(self) -> bool:
        """False where a handler cannot be set: not in the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return False
        self.received, self._missing = False, ""
        self._answered.clear()
        self._former = {number: signal.signal(number, self._handle) for number in self._signals}
        self._open = True
        if not self._at_fork:
            self._at_fork = True
            os.register_at_fork(after_in_child=self._forget)
        self._start_listener()
        return True

    def close(self) -> bool:
        """As it was before. Whether one came meanwhile: then the process still has to exit."""
        if not self._open or os.getpid() != self._pid:
            return False
        self._open = False
        self._restore_handlers()
        self._answered.set()
        self._stop_listener()
        return self.received

    def _restore_handlers(self) -> None:
        for number, former in self._former.items():
            # A handler that was set since then stays.
            if signal.getsignal(number) == self._handle:
                signal.signal(number, former or signal.SIG_DFL)

    def note_stop(self) -> None:
        """Another rank received it, and the job ends: the grace time counts from now."""
        self._answered.set()
        self._handle(self.signal, None)

    def end(self) -> None:
        """Saved: now the signal does what it would have done without us."""
        self.close()
        os.kill(os.getpid(), self.signal)

    @property
    def signal_name(self) -> str:
        return _name(self.signal)

    def answered(self) -> None:
        """The main thread saves, or the script is over: the thread has no more to do."""
        self._answered.set()

    def left(self) -> float:
        """Seconds left for a save; infinite while no signal was received."""
        if not self.received:
            return math.inf
        return max(0.0, self.received_at + USABLE_SHARE * self.seconds - time.monotonic())

    # --- the signal ------------------------------------------------------------------------------

    def _handle(self, number: int, _frame: FrameType | None) -> None:
        # A second one says nothing new: schedulers signal every process, launchers their ranks.
        if not self.received:
            self.received_at = time.monotonic()
            self.signal = signal.Signals(number)
            self.received = True

    def _start_listener(self) -> None:
        reading, writing = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        os.set_blocking(reading, True)
        before = signal.set_wakeup_fd(writing, warn_on_full_buffer=False)
        if before >= 0:  # an event loop's: it was here first
            signal.set_wakeup_fd(before, warn_on_full_buffer=False)
            os.close(reading)
            os.close(writing)
            return
        self._ends = (reading, writing)
        threading.Thread(
            target=self._listen, args=(reading,), name="holdfast-grace", daemon=True
        ).start()

    def _stop_listener(self) -> None:
        _reading, writing = self._ends
        if writing < 0:
            return
        self._ends = (-1, -1)
        current = signal.set_wakeup_fd(-1)
        if current not in (writing, -1):
            signal.set_wakeup_fd(current)
        os.close(writing)  # the thread reads an end, closes its own and goes

    def _forget(self) -> None:
        """In a forked child: it has no checkpoint, and must exit on a signal.

        In a process group of its own: launchers signal the whole group, and a loader's worker that
        exits at once takes its rank with it ('DataLoader worker is killed') before the save.
        """
        with contextlib.suppress(OSError, ValueError):
            if not self._open:
                return
            self._open = False
            os.setpgid(0, 0)
            self._restore_handlers()
            signal.set_wakeup_fd(-1)
            for end in self._ends:
                os.close(end)

    # --- the thread ----------------------------------------------------------------------------

    def _listen(self, reading: int) -> None:
        # To the end: other signals arrive here as well, and a pipe without a reader complains.
        with open(reading, "rb", buffering=0) as pipe:
            while came := pipe.read(64):
                for number in self._signals:
                    if number in came:
                        self._wait_for_the_end(time.monotonic(), number)

    def _wait_for_the_end(self, since: float, number: signal.Signals) -> None:
        """Until the main thread has saved or given up, the time is over, or a peer is gone."""
        threading.Thread(target=self._look_for_peers, name="holdfast-peers", daemon=True).start()
        until, said = since + USABLE_SHARE * self.seconds, self._is_quiet
        while not self._answered.wait(POLL_SECONDS):
            now = time.monotonic()
            if self._missing or now >= until or save_is_hopeless():
                break
            if not said and now >= since + SAID_AFTER:
                said = True
                say(f"{_name(number)}: waiting up to {until - now:.0f} s for the next ckpt.step(), "
                    "to save and exit")  # fmt: skip
        else:
            return
        former = self._former.get(number)
        if callable(former) and former is not signal.default_int_handler:
            return  # the script's own handler is to run: only its main thread can
        self.signal = number
        why = self._missing or (
            f"no ckpt.step() within {USABLE_SHARE * self.seconds:g} s, of a grace time of "
            f"{self.seconds:g} s"
        )
        if not save_is_hopeless():  # else the launcher has said why
            say(f"{_name(number)}: exiting without a save: {why}")
        # Python sets handlers from its main thread only, which may not respond.
        ctypes.CDLL(None).signal(int(number), ctypes.c_void_p(0))
        os.kill(os.getpid(), number)

    def _look_for_peers(self) -> None:
        """In a thread of its own: a store that does not answer must not use up the grace time."""
        while not self._missing and not self._answered.wait(LOOK_SECONDS):
            self._missing = self._missing_peer()


def _name(number: signal.Signals) -> str:
    return "Ctrl-C" if number == signal.SIGINT else number.name
