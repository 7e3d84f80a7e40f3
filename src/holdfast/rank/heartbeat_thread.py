"""A thread that does nothing but beat: as long as it does, other threads can take the GIL.

It is started when torch is being imported, not before: a script without torch keeps its single
thread (since Python 3.12 a fork in a process with threads is warned about). It is no
`threading.Thread`, so a script that counts its threads counts its own only.
"""

from __future__ import annotations

import _thread
import os
import signal

from holdfast.rank import own_page, prctl

NAME = "holdfast-beat"
"""the kernel's name of the thread: the CPU time of the rank is counted without this one"""
PERIOD = 0.1

_stop = _thread.allocate_lock()
"""held while the thread is to run: waiting for it is a sleep that can be cut short"""
_stopped = _thread.allocate_lock()
"""held while the thread does run"""
_running = _started = False


def start() -> None:
    global _running, _started  # noqa: PLW0603 - one process has one beat
    if _running:
        return
    if not _started:
        os.register_at_fork(after_in_child=_forget)
    _running = _started = True
    _stop.acquire()
    _stopped.acquire()
    # A thread inherits the mask of its maker. A signal meant for a script that waits for it
    # with every signal blocked (sigwait) must not be delivered here instead.
    before = signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals())
    try:
        _thread.start_new_thread(_beat, ())
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def stop() -> None:
    """Before Python is torn down, which a running thread would not survive in good order."""
    global _running  # noqa: PLW0603
    if _running:
        _running = False
        _stop.release()
        _stopped.acquire(timeout=1.0)


def _forget() -> None:
    """A forked child has the locks, and not the thread."""
    global _running, _stop, _stopped  # noqa: PLW0603
    _running = False
    _stop, _stopped = _thread.allocate_lock(), _thread.allocate_lock()


def _beat() -> None:
    try:
        prctl.name_this_thread(NAME)
        while True:
            page = own_page.page
            if page is not None:
                page.beat()
            if _stop.acquire(timeout=PERIOD):
                return
    except Exception as problem:  # noqa: BLE001
        own_page.complain(problem)
    finally:
        _stopped.release()
