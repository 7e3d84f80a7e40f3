"""What ranks started, and what of it outlives them.

Helpers of a rank may have sessions of their own (`setsid`, daemons, some loaders): no signal to
the rank's session reaches them, and they keep holding GPU memory, ports and files. As a child
subreaper we become the parent of every such orphan instead of pid 1, so that descent from our ranks
stays visible, and with it the proof that a process is ours to end.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from typing import NamedTuple

from holdfast.analysis.scene.scene import SurvivingProcess
from holdfast.run.launch.terminate import is_gone
from holdfast.system import kernel_calls
from holdfast.system.environments import EnvironmentReader, value
from holdfast.system.proc import ProcessRow, process_table, row_of

LEAST_GRACE = 2.0
"""seconds between SIGTERM and SIGKILL where its rank had none, or has used it up"""
KILL_DEADLINE = 5.0
SETTLE = 0.5
"""seconds in which helpers of a rank that ended well notice it and go"""
LOOK_AGAIN = 0.02
_PR_SET_CHILD_SUBREAPER = 36
_PR_GET_CHILD_SUBREAPER = 37
EVIDENCE_TAKERS = frozenset({"py-spy"})
"""the only children of ours, beside the ranks, that have sessions of their own"""


class Descendant(NamedTuple):
    row: ProcessRow
    rank: int | None
    """whose child it is; None when its parent had gone and its environment does not say"""


class Descendants:
    """All that descends from the ranks of one job. While it is entered, orphans come to us; where
    the kernel refuses that, only those seen before their rank ended are found."""

    def __init__(self, run_id: str) -> None:
        self._mark = f"TORCHELASTIC_RUN_ID={run_id}".encode()
        self._before = ctypes.c_int(0)
        self._environments = EnvironmentReader()

    def __enter__(self) -> Descendants:
        prctl = ctypes.CDLL(None).prctl
        prctl(_PR_GET_CHILD_SUBREAPER, ctypes.byref(self._before), 0, 0, 0)
        prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        return self

    def __exit__(self, *_: object) -> None:
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, self._before.value, 0, 0, 0)

    def members(self, ranks: Mapping[int, int]) -> list[Descendant]:
        """All living descendants of these ranks (pid -> rank), and of ranks that have ended."""
        table = process_table()
        children: dict[int, list[ProcessRow]] = {}
        for row in table.values():
            children.setdefault(row.parent, []).append(row)
        found = [
            Descendant(row, rank) for pid, rank in ranks.items() for row in _below(pid, children)
        ]
        adopted = _adopted(table, ranks)
        environments = self._environments.of(adopted) if adopted else {}
        for orphan in adopted:
            # A shell that became us by exec may have had children, which are none of a rank's.
            if self._mark in environments[orphan.pid]:
                rank = rank_in(environments[orphan.pid])
                found += [Descendant(row, rank) for row in (orphan, *_below(orphan.pid, children))]
        return [member for member in found if not is_gone(member.row)]

    def end(
        self,
        ranks: Mapping[int, int],
        seen: Iterable[Descendant],
        *,
        until: float = 0.0,
        brief: Collection[int] = (),
        hurry: Callable[[], bool] = lambda: False,
    ) -> tuple[list[SurvivingProcess], list[int]]:
        """End what outlived these ranks, which have ended, `seen` before or not; answers what
        it was, and the pids that even SIGKILL left. Each has its rank's grace, `until` then:
        it may still upload. Those of ranks killed at once, `brief`, have 2 s."""
        ended, left = end_all(
            seen, others=lambda: self.members(ranks), until=until, brief=brief, hurry=hurry
        )
        self.reap(ranks)
        return ended, left

    def after_a_good_end(self, ranks: Mapping[int, int]) -> list[SurvivingProcess]:
        """The processes that live on; helpers that end by themselves get a moment to do so."""
        deadline = time.monotonic() + SETTLE
        while (left := self.members(ranks)) and time.monotonic() < deadline:
            time.sleep(LOOK_AGAIN)
        return [outlived(member) for member in left]

    def reap(self, ranks: Iterable[int]) -> None:
        """Reap adopted children that have ended: no other process will, and each holds a pid.

        The ranks, and what else we started, are left to the code that waits for them.
        """
        try:
            if os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
                return  # none has ended; the table of a busy machine has thousands of rows
        except ChildProcessError:
            return
        for row in _adopted(process_table(), ranks):
            if is_gone(row):
                with contextlib.suppress(ChildProcessError):
                    os.waitpid(row.pid, os.WNOHANG)


def end_all(
    seen: Iterable[Descendant],
    *,
    others: Callable[[], list[Descendant]] = list,
    until: float = 0.0,
    brief: Collection[int] = (),
    hurry: Callable[[], bool] = lambda: False,
) -> tuple[list[SurvivingProcess], list[int]]:
    """SIGTERM, 2 s or `until` then, SIGKILL, to those seen and to what `others` finds meanwhile."""

    def living() -> list[Descendant]:
        return [m for m in {**_found(others()), **to_end}.values() if lives(m.row)]

    to_end = _found(seen)
    to_end = _found(living())
    for member in to_end.values():
        _send(member.row, signal.SIGTERM)
        if member.row.state in ("T", "t"):  # a stopped process takes no signal before it runs on
            _send(member.row, signal.SIGCONT)
    soon = time.monotonic() + LEAST_GRACE
    _wait([m for m in to_end.values() if m.rank not in brief], max(soon, until), hurry)
    _wait(to_end.values(), soon, hurry)
    deadline = time.monotonic() + KILL_DEADLINE
    # Those ended may have started others in between: until none is left.
    while (left := living()) and time.monotonic() < deadline:
        to_end |= _found(left)
        for member in left:
            _send(member.row, signal.SIGKILL)
        time.sleep(LOOK_AGAIN)
    return [outlived(member) for member in to_end.values()], [m.row.pid for m in left]


def _found(members: Iterable[Descendant]) -> dict[int, Descendant]:
    return {member.row.pid: member for member in members}


def outlived(member: Descendant) -> SurvivingProcess:
    return SurvivingProcess(rank=member.rank, pid=member.row.pid, name=member.row.name)


def _adopted(table: Mapping[int, ProcessRow], ranks: Iterable[int]) -> list[ProcessRow]:
    """Children of ours that we did not start: a rank leads a session, and nothing below it ever
    comes back into ours."""
    me, session, known = os.getpid(), os.getsid(0), set(ranks)
    return [
        row
        for row in table.values()
        if row.parent == me
        and row.session != session
        and row.pid not in known
        and row.name not in EVIDENCE_TAKERS
    ]


def _below(pid: int, children: Mapping[int, list[ProcessRow]]) -> Iterator[ProcessRow]:
    for row in children.get(pid, ()):
        yield row
        yield from _below(row.pid, children)


def rank_in(environment: Iterable[bytes]) -> int | None:
    """A process's environment is that of its rank."""
    rank = value(environment, b"RANK")
    return int(rank) if rank and rank.isdigit() else None


def lives(row: ProcessRow) -> bool:
    """Whether it is still that very process: a number is given again, a start time is not."""
    now = row_of(row.pid)
    return now is not None and now.started == row.started and not is_gone(now)


def _send(row: ProcessRow, sign: signal.Signals) -> None:
    """The handle stays with the process it was opened for; only then is it sure which."""
    with contextlib.suppress(ProcessLookupError, PermissionError):
        try:
            handle = kernel_calls.pidfd_open(row.pid)
        except ProcessLookupError:
            return
        except OSError:  # no pidfd in this kernel or sandbox
            if lives(row):
                os.kill(row.pid, sign)
            return
        try:
            if lives(row):
                kernel_calls.pidfd_send_signal(handle, sign)
        finally:
            os.close(handle)


def _wait(members: Collection[Descendant], deadline: float, hurry: Callable[[], bool]) -> None:
    while any(lives(member.row) for member in members):
        if time.monotonic() >= deadline or hurry():
            return
        time.sleep(LOOK_AGAIN)
