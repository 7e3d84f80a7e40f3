"""End ranks, with everything they started, in order and within a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection, Sequence
from types import FrameType
from typing import Any

from holdfast.system.proc import ProcessRow, process_table, row_of

LOOK_AGAIN = 0.02
KILL_DEADLINE = 10.0
"""a process that outlives SIGKILL this long hangs inside the kernel"""


def exit_code(child: int) -> int | None:
    """As subprocess gives it; None while it lives. The child is not reaped: as a zombie it
    keeps its number, which names its session, so that no stranger can get it."""
    how = os.waitid(os.P_PID, child, os.WEXITED | os.WNOHANG | os.WNOWAIT)
    if how is None:
        return None
    return how.si_status if how.si_code == os.CLD_EXITED else -how.si_status


def end(
    leaders: Collection[int],
    *,
    at_once: Collection[int] = (),
    sign: int = signal.SIGTERM,
    grace: float = 5.0,
    hurry: Callable[[], bool] = lambda: False,
) -> list[int]:
    """End these session leaders, our unreaped children, and their whole sessions.

    Those `at_once` are killed; the others get the signal and `grace` seconds, or until `hurry`.
    Answers the processes that even SIGKILL did not end.
    """
    _kill_sessions(at_once)
    polite = [leader for leader in leaders if leader not in at_once]
    for leader in polite:
        _to_group(leader, sign)
        # A stopped process takes no signal before it runs on.
        if (row := row_of(leader)) and row.state in ("T", "t"):
            _to_group(leader, signal.SIGCONT)
    deadline = time.monotonic() + grace
    while not all(is_gone(row_of(leader)) for leader in polite):
        if time.monotonic() >= deadline or hurry():
            break
        time.sleep(LOOK_AGAIN)
    deadline = time.monotonic() + KILL_DEADLINE
    # Those killed may have started others in between: until none is left.
    while (left := _kill_sessions(leaders)) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN)
    return left


def _kill_sessions(leaders: Collection[int]) -> list[int]:
    """SIGKILL to every process of these sessions: DataLoader workers have groups of their own."""
    if not leaders:
        return []
    rows = process_table().values()
    living = [row.pid for row in rows if row.session in leaders and not is_gone(row)]
    for pid in living:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return living


def _to_group(leader: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, sign)


def is_leaving(pid: int) -> bool:
    """The kernel takes it apart, or has: its memory is gone, and with it the name of its program.
    On a busy machine seconds may pass from there until its end is reported to us."""
    try:
        os.readlink(f"/proc/{pid}/exe")
    except FileNotFoundError:
        return True
    except OSError:  # another user's: unknown
        return False
    return False


def is_gone(row: ProcessRow | None) -> bool:
    """A process whose main thread has ended shows as a zombie while its other threads, and the
    files and ports it has open, are still there."""
    return row is None or row.state == "X" or (row.state == "Z" and row.threads <= 1)


def strays(known: Collection[int]) -> list[int]:
    """Session leaders among our children that are not known."""
    rows = process_table().values()
    return [
        row.pid
        for row in rows
        if row.parent == os.getpid() and row.session == row.pid and row.pid not in known
    ]


class StopSignals:
    """The signals that ask us to end the job; noted, and obeyed at the next tick.

    torch's own handler raises wherever the program happens to be, in the middle of a journal
    line too.
    """

    def __init__(self, signals: Sequence[signal.Signals]) -> None:
        self._signals = signals
        self._before: dict[int, Any] = {}
        self.told: signal.Signals | None = None
        self.hurry = False

    def __enter__(self) -> StopSignals:
        self._before = {number: signal.getsignal(number) for number in self._signals}
        self.listen()
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._before.items():
            signal.signal(number, handler if handler is not None else signal.SIG_DFL)

    def listen(self) -> None:
        """Again after every start of ranks: torch sets its own handlers then."""
        for number in self._signals:
            # `nohup` means it: what was ignored when we started stays ignored
            if self._before.get(number) is not signal.SIG_IGN:
                signal.signal(number, self._hear)
            else:
                signal.signal(number, signal.SIG_IGN)

    def _hear(self, number: int, _: FrameType | None) -> None:
        if self.told is None:
            self.told = signal.Signals(number)
        else:  # a second Ctrl-C
            self.hurry = True
