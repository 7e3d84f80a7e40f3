"""A job in a cgroup with a memory limit, and a rank that takes more than is left."""

from __future__ import annotations

import time

import psutil

from holdfast.analysis.drill.host_acts import LimitMemory
from holdfast.drill.acts.registry import Carrier, carries_out
from holdfast.drill.stage import CannotInjectHere, Stage, is_running, wait_until
from holdfast.system.own_cgroup import CannotLimitError, OwnCgroup

SECONDS = 60.0
"""that the rank has to take all of it"""


@carries_out(LimitMemory)
class MemoryLimitCarrier(Carrier):
    def prepare(self, act: LimitMemory, stage: Stage) -> None:  # noqa: ARG002 - as the others
        try:
            self.cgroup = OwnCgroup("memory")
        except CannotLimitError as why:
            raise CannotInjectHere(str(why)) from why
        stage.afterwards(self.cgroup.remove)
        # The launcher too: as in a container, and so that `run` finds the kill in its own cgroup.
        before = stage.wrap
        stage.wrap = lambda command: before(self.cgroup.command(command))
        stage.order("allocate", waits=True)

    def inject(self, act: LimitMemory, stage: Stage) -> None:
        pid = stage.pid(stage.rehearsal.rank)
        room = _beyond_the_largest(pid, stage) + act.room
        if psutil.virtual_memory().available < 2 * room:
            raise CannotInjectHere("too little memory is free to take some safely")
        self.cgroup.limit_memory(self.cgroup.memory_used() + room)
        stage.release()
        wait_until(lambda: self.cgroup.memory_kills() > 0 or not is_running(pid), seconds=SECONDS)
        stage.injected = time.time()
        killed = self.cgroup.memory_kills() > 0
        self.cgroup.lift()  # the ranks that are started again need what the first ones had
        if not killed:
            raise CannotInjectHere("the kernel ended no process at the memory limit")


def _beyond_the_largest(pid: int, stage: Stage) -> int:
    """The kernel ends the largest process: what this one must take to be that."""
    newest = {one.began.rank for one in stage.attempts()}
    return max(_memory(stage.pid(rank)) for rank in newest) - _memory(pid)


def _memory(pid: int) -> int:
    return int(psutil.Process(pid).memory_info().rss)
