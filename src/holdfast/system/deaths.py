"""Which child died, how and in which order, as the kernel reports it, without polling.

When one rank dies, its peers raise 'connection reset' within 50 ms and die too, so the order
decides who is the culprit. A pidfd becomes readable when the last thread of its process has
gone, and an epoll set lists what became readable in that order.
"""

from __future__ import annotations

import contextlib
import os
import select
import threading
import time
from collections.abc import Callable
from typing import NamedTuple

from holdfast.analysis.scene.scene import Death
from holdfast.system import kernel_calls

UNKNOWN = 256
"""The code of a process that was reaped before we could look: no real status has this value."""

POLL_EVERY = 0.02
"""where the kernel or a container's filter has no pidfd"""


class _Watched(NamedTuple):
    pid: int
    descriptor: int | None
    """None where there is no pidfd: then it is polled"""
    returncode: Callable[[], int | None] | None


class DeathWatch:
    """Watches children of this process; reaps none of them, so that their Popen still can."""

    def __init__(self, *, pidfds: bool = True) -> None:
        self._pidfds = pidfds
        self._lock = threading.Lock()
        self._ready = select.epoll()
        self._wake_read, self._wake_write = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._watched: list[_Watched] = []
        self._dead: list[tuple[_Watched, Death]] = []
        self._last = 0.0
        self._open = True
        self._thread = threading.Thread(target=self._listen, name="holdfast-deaths", daemon=True)
        self._thread.start()

    def watch(self, pid: int, returncode: Callable[[], int | None] | None = None) -> None:
        """Watch a child; raises ProcessLookupError when it is already reaped.

        `returncode` asks the other code that may reap it (`lambda: popen.returncode`): it is
        called, from `deaths`, only when the kernel has already forgotten the status.
        """
        descriptor = _pidfd(pid) if self._pidfds else None
        with self._lock:
            # The kernel may give a number again: an old death is not the new child's.
            self._dead = [(who, death) for who, death in self._dead if who.pid != pid]
            self._watched.append(_Watched(pid, descriptor, returncode))
            if descriptor is not None:
                self._ready.register(descriptor, select.EPOLLIN)
        if descriptor is None:
            os.write(self._wake_write, b".")  # the thread sleeps without end while none is polled

    def deaths(self) -> list[tuple[int, Death]]:
        """Everything that died since the start, first death first, up to this moment.

        Times are distinct and rise, so sorting by them keeps the order.
        """
        with self._lock:
            self._collect()
            self._dead = [(who, _completed(who, death)) for who, death in self._dead]
            return [(who.pid, death) for who, death in self._dead]

    def close(self) -> None:
        """End the thread and let go of all descriptors; the children live on."""
        with self._lock:
            if not self._open:
                return
            self._open = False
        os.write(self._wake_write, b".")
        self._thread.join()
        for watched in self._watched:
            if watched.descriptor is not None:
                os.close(watched.descriptor)
        self._watched.clear()
        self._ready.close()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def _listen(self) -> None:
        """Note deaths as they come, whatever the main thread is busy with."""
        waiting = select.poll()
        # The epoll set is itself waited for, and emptied only under the lock: two readers of
        # one set could each take a part and swap the order.
        waiting.register(self._ready.fileno(), select.POLLIN)
        waiting.register(self._wake_read, select.POLLIN)
        polled = False
        while True:
            waiting.poll(POLL_EVERY * 1000 if polled else None)
            with self._lock:
                if not self._open:
                    return
                with contextlib.suppress(BlockingIOError):
                    os.read(self._wake_read, 4096)
                self._collect()
                polled = any(watched.descriptor is None for watched in self._watched)

    def _collect(self) -> None:
        """Under the lock: note who became ready since the last time, in the kernel's order."""
        if not self._open:
            return
        by_descriptor = {watched.descriptor: watched for watched in self._watched}
        for descriptor, _ in self._ready.poll(0, max(1, len(self._watched))):
            watched = by_descriptor[descriptor]
            self._note(watched, _status(kernel_calls.P_PIDFD, descriptor))
            self._ready.unregister(descriptor)
            os.close(descriptor)
        for watched in [w for w in self._watched if w.descriptor is None]:
            code = _status(os.P_PID, watched.pid)
            if code is not None:
                self._note(watched, code)

    def _note(self, watched: _Watched, code: int | None) -> None:
        self._last = max(time.monotonic(), self._last + 1e-6)
        death = Death(code=UNKNOWN if code is None else code, at=self._last)
        self._dead.append((watched, death))
        self._watched.remove(watched)


def _pidfd(pid: int) -> int | None:
    try:
        return kernel_calls.pidfd_open(pid)
    except ProcessLookupError:
        raise
    except OSError:  # ENOSYS before Linux 5.3, EPERM from an old container's seccomp filter
        return None


def _status(kind: int, number: int) -> int | None:
    """The code as subprocess gives it; None while it lives, UNKNOWN when it was reaped.

    WNOWAIT leaves the child to be reaped by its owner.
    """
    try:
        ended = os.waitid(kind, number, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    except ChildProcessError:
        return UNKNOWN
    if ended is None:
        return None
    return ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status


def _completed(watched: _Watched, death: Death) -> Death:
    if death.code != UNKNOWN or watched.returncode is None:
        return death
    code = watched.returncode()
    return death if code is None else Death(code=code, at=death.at)
