"""What the machine says when a job is short of processor time: cores, quota, neighbours."""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Mapping

from holdfast.analysis.machine import Process, Unread
from holdfast.analysis.scene.cpu import Neighbour, Processor
from holdfast.system import cgroup_files, cgroup_tree, cpu_use
from holdfast.system.cgroup_tree import CgroupFolder
from holdfast.system.deadline import ask_here
from holdfast.system.proc import row_of
from holdfast.system.process import describe

WINDOW = 0.2
"""seconds: twenty ticks of the kernel's process clock"""
STALE = 60.0
"""seconds after which an older look says little about now"""
BUSY = 0.05
"""of a core; less is the background of every machine. Not more: a crowd of neighbours starves us
and each other alike, and each of them uses little"""
AT_MOST = 3


class Looker:
    """Looks at the machine now and then, and compares with the look before.

    A look walks all of /proc, so it is for the moment when ranks are known to wait. The first
    one takes WINDOW seconds, since a share needs two.
    """

    def __init__(self, root: str = "/") -> None:
        self._root = root
        self._quota = _quota(root)
        self._counts = self._throttling()
        self._before: dict[int, cpu_use.Sample] = {}
        self._looked_at = 0.0

    def try_to_look(self, ranks: Iterable[int]) -> Processor | Unread:
        try:
            return self.look(ranks)
        except OSError as problem:
            return Unread(why=f"who uses the processors cannot be seen: {problem}")

    def look(self, ranks: Iterable[int]) -> Processor:
        """`ranks`: their pids; what descends from this process is no neighbour."""
        usable = _usable(ranks)
        near = self._strangers(usable)
        neighbours = (_neighbour(pid, share) for pid, share in list(near.items())[:AT_MOST])
        cores = self._quota.cores if self._quota else None
        return Processor(
            cores=min(len(usable), cores) if cores else len(usable),
            quota=cores,
            throttled=self._throttled(),
            pressure=_pressure(self._root),
            load=os.getloadavg()[0],
            strangers=len(near),
            taken=round(sum(near.values()), 2),
            neighbours=tuple(who for who in neighbours if who),
        )

    def _strangers(self, usable: set[int]) -> dict[int, float]:
        if not self._before or time.monotonic() - self._looked_at > STALE:
            self._before, self._looked_at = cpu_use.samples(), time.monotonic()
        time.sleep(max(0.0, self._looked_at + WINDOW - time.monotonic()))
        before, self._before = self._before, cpu_use.samples()
        self._looked_at = time.monotonic()
        busy = cpu_use.strangers(before, self._before, family=os.getpid(), above=BUSY)
        return {pid: share for pid, share in busy.items() if _cores_of(pid) & usable}

    def _throttling(self) -> Mapping[str, int]:
        folder = self._quota.folder if self._quota else ""
        counts = ask_here(lambda: cgroup_files.table(cgroup_files.read(folder, "cpu.stat")))
        return {} if not folder or isinstance(counts, Unread) else counts

    def _throttled(self) -> float | None:
        before, self._counts = self._counts, self._throttling()
        periods = self._counts.get("nr_periods", 0) - before.get("nr_periods", 0)
        stopped = self._counts.get("nr_throttled", 0) - before.get("nr_throttled", 0)
        return stopped / periods if periods > 0 else None


def _quota(root: str) -> cgroup_files.Quota | None:
    """None too where it is outside of what this container sees, or may not be read."""
    place = ask_here(lambda: cgroup_tree.find("cpu", root))
    quota = ask_here(lambda: cgroup_files.quota(place)) if isinstance(place, CgroupFolder) else None
    return quota if isinstance(quota, cgroup_files.Quota) else None


def _usable(ranks: Iterable[int]) -> set[int]:
    """Cores that any of the ranks may use; ours, which they inherited, when they are gone."""
    return set().union(*map(_cores_of, ranks)) or os.sched_getaffinity(0)


def _cores_of(pid: int) -> set[int]:
    try:
        return os.sched_getaffinity(pid)
    except OSError:  # it is gone
        return set()


def _neighbour(pid: int, share: float) -> Neighbour | None:
    row, who = row_of(pid), describe(pid)
    if row is None or not isinstance(who, Process):
        return None
    # A name is bytes of its owner's choice: nothing of it may reach a terminal unseen.
    name = "".join(c for c in row.name if c.isprintable())
    return Neighbour(pid=pid, name=name, command=who.command, cores=round(share, 2))


def _pressure(root: str) -> float | None:
    """Of the whole machine: which rank waits is in the ranks' own counters."""
    try:
        text = cgroup_files.read(os.path.join(root, "proc/pressure"), "cpu")
    except OSError:
        return None
    return cgroup_files.some(text, "avg10")
