"""A terminal for a rank, where we have one ourselves.

torchrun lets its ranks write to its own terminal, so progress bars move, tracebacks have
colours and the width of the window is known. Behind a pipe all that is lost. So a rank gets a
terminal of its own, which changes no byte, and we carry what comes out of it.

It is no process's controlling terminal: no Ctrl-C and no hang-up reach a rank through it, as none
do under torchrun, which starts each rank in a session of its own.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import signal
import termios
import threading
import tty
from types import FrameType
from typing import Any

SIZE = 8
"""bytes of struct winsize: rows, columns, and both in pixels"""


def open_pair(like: int) -> tuple[int, int]:
    """Our end, and the rank's: as large as the terminal `like`. OSError when there is none."""
    # The C library opens the rank's end with O_NOCTTY. When torch opens it again it asks for
    # writing only, and the kernel makes nothing a controlling terminal that cannot be read.
    ours, theirs = os.openpty()
    try:
        tty.setraw(theirs)  # else each \n becomes \r\n here, and once more on the screen
    except termios.error as problem:
        os.close(ours)
        os.close(theirs)
        raise OSError(*problem.args) from problem
    copy_size(like, ours)
    return ours, theirs


def is_one_place(one: int, other: int) -> bool:
    """Whether both descriptors write to one terminal, file or pipe: `> log 2>&1`."""
    try:
        return os.path.sameopenfile(one, other)
    except OSError:  # one of them is closed
        return False


def copy_size(source: int, target: int) -> None:
    with contextlib.suppress(OSError):  # one of them is gone
        fcntl.ioctl(
            target, termios.TIOCSWINSZ, fcntl.ioctl(source, termios.TIOCGWINSZ, bytes(SIZE))
        )


class TerminalSizes:
    """The ranks' terminals grow and shrink with ours.

    The kernel informs only us (SIGWINCH goes to the session that the terminal controls); a rank
    that asks for the size gets the new one, which is all it would get under torchrun.
    """

    def __init__(self) -> None:
        self._followers: dict[int, int] = {}
        self._listening = False
        self._before: Any = None

    def follow(self, ours: int, like: int) -> None:
        self._followers[ours] = like
        # Python lets only the main thread set a handler; elsewhere the size stays as it was.
        if not self._listening and threading.current_thread() is threading.main_thread():
            self._listening = True
            self._before = signal.signal(signal.SIGWINCH, self._changed)

    def forget(self, ours: int) -> None:
        self._followers.pop(ours, None)

    def close(self) -> None:
        if self._listening and threading.current_thread() is threading.main_thread():
            self._listening = False
            # None: it was not Python that set the handler before us
            signal.signal(signal.SIGWINCH, self._before or signal.SIG_DFL)

    def _changed(self, number: int, frame: FrameType | None) -> None:
        for ours, like in list(self._followers.items()):
            copy_size(like, ours)
        if callable(self._before):
            self._before(number, frame)
