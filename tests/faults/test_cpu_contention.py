from __future__ import annotations

from typing import Any

import msgspec

from holdfast.facts import Cgroup, HostLoad, Unread
from tests.faults.machines import a_machine, a_plan, a_process
from tests.faults.table import foresee_table, silent, skips, speaks

HEALTHY = a_machine()


def cgroup(**changes: Any) -> Cgroup:
    assert isinstance(HEALTHY.cgroup, Cgroup)
    return msgspec.structs.replace(HEALTHY.cgroup, **changes)


def load(**changes: Any) -> HostLoad:
    assert isinstance(HEALTHY.load, HostLoad)
    return msgspec.structs.replace(HEALTHY.load, **changes)


BUSY = tuple(a_process(pid=n, command="python other.py", user="ann") for n in range(901, 904))

test_foresee = foresee_table(
    "cpu-contention",
    speaks(
        "warning",
        a_machine(load=load(cpus_usable=2)),
        saying=["4 ranks would share 2 cores", "2 of 64 cores may be used", "--cpus-per-task"],
    ),
    speaks(
        "warning",
        a_machine(load=load(cpus_usable=2, cpus_online=2, load1=9.0, busy=BUSY)),
        saying=["start at most 2 ranks"],
        not_saying=["busy processes leave"],
    ),
    speaks(
        "warning",
        a_machine(cgroup=cgroup(cpu_quota=1.5)),
        saying=["quota 1.5 cores", "less than one core for each of 4 ranks", "--cpus"],
    ),
    speaks(
        "warning",
        a_machine(cgroup=cgroup(cpu_quota=16.0, throttled_share=0.4)),
        saying=["throttled in 40% of periods", "stood still"],
        not_saying=["less than one core"],
    ),
    speaks("note", a_machine(cgroup=cgroup(cpu_pressure=60.0)), saying=["already wait"]),
    speaks(  # a process that has only just started may be a passing one
        "note",
        a_machine(load=load(cpus_online=4, cpus_usable=4, busy=(a_process(age=2.0),))),
        saying=["1 other busy process leaves 3 of 4 cores for 4 ranks", "only just started"],
    ),
    speaks(
        "warning",
        a_machine(load=load(cpus_online=6, cpus_usable=6, busy=BUSY, load1=3.0)),
        saying=["3 other busy processes leave 3 of 6 cores for 4 ranks", "pid 901", "user ann"],
    ),
    speaks(
        "note",
        a_machine(load=load(cpus_online=8, cpus_usable=8, load1=7.5)),
        saying=["load of the last minute was 7.5 on 8 cores", "may be over"],
    ),
    silent(a_machine()),
    silent(a_machine(cgroup=cgroup(cpu_quota=4.0, throttled_share=0.05, cpu_pressure=5.0))),
    silent(a_machine(load=load(busy=BUSY, load1=3.0))),  # busy, but 64 cores
    silent(a_machine(load=load(cpus_usable=4))),
    silent(a_machine(cgroup=cgroup(cpu_pressure=None), plan=a_plan(nproc=64))),
    skips(a_machine(load=Unread(why="no stat")), saying=["no stat"]),
    skips(a_machine(cgroup=Unread(why="no cgroup")), saying=["no cgroup"]),
)
