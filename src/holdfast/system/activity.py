"""Signs of life of a process and its descendants, read without their help.

Every counter only says 'something moved'. Threads that keep time rather than work are left
out of the processor time: with them, a rank that sleeps for ever would look alive. Not all of
them have a name (torch 2.11 with NCCL and Gloo on an H200: 2 ms a second in such threads while
the rank slept), so a little processor time is still no sign of life; bytes are.
"""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Collection, Iterable

from holdfast.analysis.scene.scene import Activity
from holdfast.system import inet_diag, proc

TIMEKEEPERS = frozenset(
    {
        b"holdfast-beat",  # our own beat
        b"pt_workerserver",  # answers our own questions
        b"gloo_tcp_loop",  # Gloo looks every 10 ms; the bytes it moves are counted as bytes
        b"pt_nccl_watchdg",  # torch looks at its NCCL work every 100 ms
        b"pt_nccl_heartbt",  # and at that watchdog
        b"cuda-EvtHandlr",  # the driver's own
    }
)
"""names the kernel knows, at most 15 characters"""


def read(pid: int, *, sockets: bool = True, ignore_ports: Collection[int] = ()) -> Activity | None:
    """What one process and its descendants have done so far; None when it is gone."""
    return read_many([pid], sockets=sockets, ignore_ports=ignore_ports)[pid]


def read_many(
    pids: Iterable[int], *, sockets: bool = True, ignore_ports: Collection[int] = ()
) -> dict[int, Activity | None]:
    """The same for several, with one look at the connections of the machine.

    Connections to one of `ignore_ports` do not count: NCCL's monitor asks the rendezvous store
    every second, whatever the rank does. Without `sockets` their bytes are 0 and the look is
    cheaper.
    """
    moved = _bytes_by_inode(ignore_ports) if sockets else {}
    return {pid: _read(pid, moved) for pid in pids}


def descendants(pid: int) -> list[int]:
    """Children, grandchildren and so on, parents before their children."""
    found: list[int] = []
    for child in _children(pid):
        found += [child, *descendants(child)]
    return found


def _read(pid: int, moved: dict[str, int]) -> Activity | None:
    family = [pid, *descendants(pid)]
    rows = [proc.row_of(one) for one in family]
    try:
        ran, queued = _cpu_of_threads(pid)
    except OSError:  # it is gone, or hidden from this user
        return None
    if rows[0] is None or rows[0].state in "ZX":
        return None
    return Activity(
        state=rows[0].state,
        cpu=ran + sum(map(_cpu, family[1:])),
        io=sum(map(_io, family)),
        socket=sum(moved.get(inode, 0) for inode in held_files(family)) if moved else 0,
        faults=sum(row.major_faults for row in rows if row),
        wait_channel=_wait_channel(pid),
        queued=queued + sum(map(_queued, family[1:])),
    )


def _children(pid: int) -> list[int]:
    """Of every thread: a thread's children are listed with the thread."""
    try:
        threads = os.listdir(f"{proc.folder(pid)}/task")
    except OSError:
        return []
    files = (f"{proc.folder(pid)}/task/{thread}/children" for thread in threads)
    return [int(child) for file in files for child in proc.head_or_empty(file).split()]


def _cpu(pid: int) -> float:
    """The process's own clock: nanoseconds, dead threads included, one system call.

    /proc/PID/stat counts in ticks of 10 ms, too coarse to see that a rank does a little. The
    number of another process's clock is made as glibc's clock_getcpuclockid makes it.
    """
    try:
        return time.clock_gettime((~pid << 3) | 2)
    except OSError:  # it ended, or the kernel of this sandbox has no such clock
        row = proc.row_of(pid)
        return row.ticks / os.sysconf("SC_CLK_TCK") if row else 0.0


def _cpu_of_threads(pid: int) -> tuple[float, float]:
    """Seconds on a core, and ready but without one, of all threads that do more than keep time.

    Both are in one line of schedstat (the kernel's Documentation/scheduler/sched-stats.rst),
    and both are exactly still while the threads wait for something else. Time in which a quota
    holds a ready thread back counts as waiting for a core (seen on Linux 6.18).
    """
    spent, queued, known = 0, 0, False
    for thread in os.listdir(f"{proc.folder(pid)}/task"):
        folder = f"{proc.folder(pid)}/task/{thread}"
        if proc.head_or_empty(f"{folder}/comm").rstrip() not in TIMEKEEPERS:
            running = proc.head_or_empty(f"{folder}/schedstat").split()
            if len(running) > 1:
                spent, queued, known = spent + int(running[0]), queued + int(running[1]), True
    return (spent / 1e9 if known else _cpu(pid)), queued / 1e9


def _queued(pid: int) -> float:
    """Of a child's main thread, which is the one that works in a loader's worker."""
    waited = proc.head_or_empty(f"{proc.folder(pid)}/schedstat").split()
    return int(waited[1]) / 1e9 if len(waited) > 1 else 0.0


def _io(pid: int) -> int:
    lines = proc.head_or_empty(f"{proc.folder(pid)}/io").splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith((b"rchar", b"wchar")))


def _wait_channel(pid: int) -> str:
    """'' while it runs, or where the kernel hides it."""
    return proc.head_or_empty(f"{proc.folder(pid)}/wchan").decode(errors="replace").strip("0\n")


def _bytes_by_inode(ignore_ports: Collection[int]) -> dict[str, int]:
    try:
        listed = inet_diag.connections(states=inet_diag.CONNECTED)
    except (OSError, ValueError):  # no INET_DIAG in this kernel or sandbox: not visible
        return {}
    return {
        f"socket:[{connection.inode}]": connection.acked + connection.received
        for connection in listed
        if connection.peer_port not in ignore_ports
    }


def held_files(family: Iterable[int]) -> set[str]:
    """Files and sockets they hold; a worker shares its parent's, which count once."""
    links: set[str] = set()
    for pid in family:
        with contextlib.suppress(*proc.GONE, PermissionError):
            links |= proc.open_files(pid)
    return links
