"""What earlier runs left on this machine: orphans, shared memory, processes that cannot end."""

from __future__ import annotations

import contextlib
import fnmatch
import os
import stat
import time
from collections.abc import Iterator

from holdfast.analysis.machine import Leftovers, Plan, ShmSegment, StuckProcess, Unread
from holdfast.check.readers.orphans import find_orphans
from holdfast.system.holders import holders
from holdfast.system.proc import ProcessRow, process_table, row_of, shows_whole_machine
from holdfast.system.process import describe

# NCCL, torch, CUDA, Intel OpenMP, and Python's multiprocessing name theirs so.
SEGMENTS = ("nccl-*", "torch_*", "cuda.shm.*", "__KMP_*", "sem.mp-*", "psm_*")
# The kernel gives its first namespaces fixed numbers (include/linux/proc_ns.h).
FIRST_IPC_NAMESPACE = "ipc:[4026531839]"
BETWEEN_LOOKS = 0.05
"""seconds; a healthy disk or network call is over by then"""


def read_leftovers(plan: Plan, shm: str = "/dev/shm") -> Leftovers:  # noqa: ARG001, S108
    table = process_table()
    sleeping = {row.pid: sleep for row in table.values() if (sleep := _deep_sleep(row))}
    looked = time.monotonic()
    orphans = find_orphans(table)
    segments = tuple(_segments(shm))
    if sleeping:
        time.sleep(max(0.0, looked + BETWEEN_LOOKS - time.monotonic()))
    return Leftovers(orphans=orphans, segments=segments, stuck=tuple(_still_asleep(sleeping)))


def _segments(folder: str) -> Iterator[ShmSegment]:
    """Segments of this user; those of others are not this user's to remove."""
    found = {}
    # Some containers have no such folder; then nothing is left in it.
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in entries:
            if any(fnmatch.fnmatchcase(entry.name, pattern) for pattern in SEGMENTS):
                found[entry.path] = entry.stat(follow_symlinks=False)
    mine = {path: seen for path, seen in found.items() if seen.st_uid == os.geteuid()}
    if not mine:
        return
    held = holders(mine, mapped=True)
    sees_outside = _sees_memory_of_processes_outside()
    for path, seen in mine.items():
        yield ShmSegment(
            path=path,
            size=seen.st_size,
            age=max(0.0, time.time() - seen.st_mtime),
            mapped_by=held.pids[path],
            all_visible=not (sees_outside or _may_hold(seen, held.hidden)),
        )


def _may_hold(seen: os.stat_result, hidden: frozenset[int]) -> bool:
    """Whether a user among the hidden ones may open this file.

    Root always may, but its daemons have no business with the memory of a user's job; and on
    every machine some of them are hidden, so that counting them would leave nothing certain.
    """
    private = stat.S_IMODE(seen.st_mode) & 0o077 == 0
    return seen.st_uid in hidden or (not private and bool(hidden - {0}))


def _sees_memory_of_processes_outside() -> bool:
    """A container with the host's IPC namespace has the host's /dev/shm, not its processes."""
    return not shows_whole_machine() and os.readlink("/proc/self/ns/ipc") == FIRST_IPC_NAMESPACE


def _deep_sleep(row: ProcessRow) -> str:
    """What tells this uninterruptible sleep from the next one; '' when it is in none.

    Kernel threads are left out: some sleep so all their life.
    """
    if row.state != "D" or row.is_kernel:
        return ""
    try:
        with open(f"/proc/{row.pid}/status", encoding="utf-8", errors="replace") as file:
            return "".join(line for line in file if "ctxt_switches" in line)
    except OSError:
        return ""


def _still_asleep(sleeping: dict[int, str]) -> Iterator[StuckProcess]:
    """Those that did not run at all between the two looks, by their count of switches."""
    for pid, sleep in sleeping.items():
        row = row_of(pid)
        process = describe(pid)
        if row is None or isinstance(process, Unread) or _deep_sleep(row) != sleep:
            continue
        yield StuckProcess(process=process, wait_channel=_wait_channel(pid))


def _wait_channel(pid: int) -> str:
    """'' where the kernel does not tell this user."""
    try:
        with open(f"/proc/{pid}/wchan", encoding="utf-8", errors="replace") as file:
            name = file.read()
    except OSError:
        return ""
    return "" if name == "0" else name
