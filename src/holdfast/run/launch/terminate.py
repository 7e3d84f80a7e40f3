"""End ranks, with everything they started, in order and within a deadline."""

from __future__ import annotations

import contextlib
import os
import signal
import time
from collections.abc import Callable, Collection

from holdfast.system.proc import (
    CHECKPOINT_WRITER,
    ProcessRow,
    counts_like_us,
    folder,
    handles,
    process_table,
    row_of,
)

LOOK_AGAIN = 0.02
LOADER_WORKER = "pt_data_worker"
"""as torch names the processes of a DataLoader"""
ASK_AGAIN = 0.5
"""seconds between two questions which ranks still exit by themselves"""
WAIT_IS_LONG = 3.0
"""seconds after which the user is told what is waited for"""
SAVE_STANDS_STILL = 10.0
"""seconds without a byte read or written after which a save is not waited for"""
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
    exiting: Callable[[], Collection[int]] = tuple,
    sign: int = signal.SIGTERM,
    grace: float = 5.0,
    hurry: Callable[[], bool] = lambda: False,
    waiting: Callable[[list[int], float], None] = lambda *_: None,
    for_saves: Callable[[], float] = lambda: 0.0,
) -> list[int]:
    """End these session leaders, our unreaped children, and their whole sessions.

    Those `at_once` are killed. Those `exiting` do so by themselves, and a signal would cut their
    exit handlers off: while they are called so they have up to `grace` seconds. The others get
    the signal and `grace` seconds, counted from the end of those exiting, whose connections they
    may be blocked on. `hurry` ends all waiting; `waiting` is told once, when it takes long: which,
    and for how many seconds more. A checkpoint that is being written has `for_saves` seconds,
    asked when the ranks are gone, to be finished without them, while it moves on.
    Answers the processes that even SIGKILL did not end.
    """
    _kill_sessions(at_once, spare=CHECKPOINT_WRITER)
    by_themselves = exiting()
    leave = [leader for leader in leaders if leader in by_themselves and leader not in at_once]
    asked = [leader for leader in leaders if leader not in (*at_once, *leave)]
    for leader in asked:
        _ask_to_end(leader, _understood(leader, sign))
        # A stopped process takes no signal before it runs on.
        if (row := row_of(leader)) and row.state in ("T", "t"):
            _to_group(leader, signal.SIGCONT)
    _wait_for_all(leave, asked, exiting, grace=grace, hurry=hurry, waiting=waiting)
    _kill_sessions(leaders, spare=CHECKPOINT_WRITER)
    _wait_for_saves(leaders, for_saves(), hurry)
    deadline = time.monotonic() + KILL_DEADLINE
    # Those killed may have started others in between: until none is left.
    while (left := _kill_sessions(leaders)) and time.monotonic() < deadline:
        time.sleep(LOOK_AGAIN)
    return left


def _wait_for_all(
    leave: list[int],
    asked: list[int],
    exiting: Callable[[], Collection[int]],
    *,
    grace: float,
    hurry: Callable[[], bool],
    waiting: Callable[[list[int], float], None],
) -> None:
    began = looked = time.monotonic()
    until, said = began + grace, False
    while living := [leader for leader in (*leave, *asked) if not _has_ended(leader)]:
        now = time.monotonic()
        if any(leader in leave for leader in living):
            until = now + grace
            if now >= looked + ASK_AGAIN:
                looked, by_themselves = now, exiting() if now < began + grace else ()
                late = [leader for leader in leave if leader not in by_themselves]
                _kill_sessions(late, spare=CHECKPOINT_WRITER)
                leave = [leader for leader in leave if leader in by_themselves]
        if hurry() or now >= until:
            return
        if not said and now >= began + WAIT_IS_LONG:
            said = True
            waiting(living, (began + grace if leave else until) - now)
        time.sleep(LOOK_AGAIN)


def _wait_for_saves(leaders: Collection[int], seconds: float, hurry: Callable[[], bool]) -> None:
    """A writer without a save ends at once; one that does not move is not waited for."""
    began = moved = time.monotonic()
    seen: dict[int, str] = {}
    while writers := [
        row.pid
        for row in process_table().values()
        if row.session in leaders and row.name == CHECKPOINT_WRITER and not is_gone(row)
    ]:
        now = time.monotonic()
        written = {pid: _written(pid) for pid in writers}
        if written != seen:
            seen, moved = written, now
        if hurry() or now >= began + seconds or now >= moved + SAVE_STANDS_STILL:
            return
        time.sleep(LOOK_AGAIN)


def _written(pid: int) -> str:
    """What it has written so far, by the kernel's count; changes while it moves on."""
    with contextlib.suppress(OSError), open(f"{folder(pid)}/io", encoding="ascii") as file:
        return file.read()
    return ""


def _has_ended(leader: int) -> bool:
    """The kernel's word for our own child where /proc does not show it."""
    if row := row_of(leader):
        return is_gone(row)
    try:
        return exit_code(leader) is not None
    except ChildProcessError:
        return True


def _kill_sessions(leaders: Collection[int], *, spare: str = "") -> list[int]:
    """SIGKILL to every process of these sessions: DataLoader workers have groups of their own."""
    if not leaders:
        return []
    table = process_table()
    living = [
        row.pid
        for row in table.values()
        if row.session in leaders and row.name != spare and not is_gone(row)
    ]
    for pid in living:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    unseen = [leader for leader in leaders if leader not in table and not _has_ended(leader)]
    for leader in unseen:
        os.kill(leader, signal.SIGKILL)
        if not spare:
            _to_group(leader, signal.SIGKILL)
    return living + unseen


def _understood(leader: int, sign: int) -> int:
    """SIGTERM instead of a signal that the rank does not handle, where it handles SIGTERM: a script
    that saves on it should save when a terminal is closed as well."""
    return sign if handles(leader, sign) or not handles(leader, signal.SIGTERM) else signal.SIGTERM


def _ask_to_end(leader: int, sign: int) -> None:
    """The whole process group, as torchrun does. Not the workers of a DataLoader, where the rank
    handles the signal: torch raises in a rank whose worker is killed, in the middle of its save.
    They end with it."""
    members = [row for row in process_table().values() if row.session == leader]
    workers = {row.pid for row in members if row.name == LOADER_WORKER}
    if not workers or not handles(leader, sign):
        _to_group(leader, sign)
        return
    for row in members:
        with contextlib.suppress(ProcessLookupError):
            if row.pid not in workers and os.getpgid(row.pid) == leader:
                os.kill(row.pid, sign)


def _to_group(leader: int, sign: int) -> None:
    with contextlib.suppress(ProcessLookupError):
        os.killpg(leader, sign)


def is_leaving(pid: int) -> bool:
    """The kernel takes it apart, or has: its memory is gone, and with it the name of its program.
    On a busy machine seconds may pass from there until its end is reported to us."""
    try:
        os.readlink(f"{folder(pid)}/exe")
    except FileNotFoundError:
        return counts_like_us(os.getpid())
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
