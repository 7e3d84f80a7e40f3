from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.machine import Cgroup, HostLoad, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import a_machine, a_plan, a_process
from tests.faults.table import (
    check_table,
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
    silent,
    skips,
    speaks,
)
from tests.run.scenes import NOW, a_scene, changed, ended, held_up
from tests.run.starving import a_processor, looks, slower, starved

HEALTHY = a_machine()


def cgroup(**changes: Any) -> Cgroup:
    assert isinstance(HEALTHY.cgroup, Cgroup)
    return msgspec.structs.replace(HEALTHY.cgroup, **changes)


def load(**changes: Any) -> HostLoad:
    assert isinstance(HEALTHY.load, HostLoad)
    return msgspec.structs.replace(HEALTHY.load, **changes)


BUSY = tuple(a_process(pid=n, command="python other.py", user="ann") for n in range(901, 904))

test_check = check_table(
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
        saying=["throttled in 40% of periods", "stopped all threads until the next period"],
        not_saying=["less than one core"],
    ),
    speaks("note", a_machine(cgroup=cgroup(cpu_pressure=60.0)), saying=["already wait"]),
    speaks(  # a process that has only just started may be a passing one
        "note",
        a_machine(load=load(cpus_online=4, cpus_usable=4, busy=(a_process(age=2.0),))),
        saying=["1 other busy process leaves 3 of 4 cores for 4 ranks", "some have just started"],
    ),
    speaks(
        "warning",
        a_machine(load=load(cpus_online=6, cpus_usable=6, busy=BUSY, load1=3.0)),
        saying=["3 other busy processes leave 3 of 6 cores for 4 ranks", "pid 901", "user ann"],
    ),
    speaks(
        "note",
        a_machine(load=load(cpus_online=8, cpus_usable=8, load1=7.5)),
        saying=["load of the last minute was 7.5 on 8 cores", "may have ended"],
    ),
    silent(  # what one job that has just ended leaves behind
        a_machine(load=load(cpus_online=2, cpus_usable=2, load1=1.07), plan=a_plan(nproc=1))
    ),
    silent(a_machine()),
    silent(a_machine(cgroup=cgroup(cpu_quota=4.0, throttled_share=0.05, cpu_pressure=5.0))),
    silent(a_machine(load=load(busy=BUSY, load1=3.0))),  # busy, but 64 cores
    silent(a_machine(load=load(cpus_usable=4))),
    silent(a_machine(cgroup=cgroup(cpu_pressure=None), plan=a_plan(nproc=64))),
    skips(a_machine(load=Unread(why="no stat")), saying=["no stat"]),
    skips(a_machine(cgroup=Unread(why="no cgroup")), saying=["no cgroup"]),
)


ALL = dict.fromkeys(range(4), 0.31)
STUCK = held_up({2: {}})
"""rank 2 has not come for 6 s"""

test_run = run_table(
    "cpu-contention",
    notices(
        slower(ALL),
        ranks=[],
        victims=[],
        certain=False,
        saying=[
            "the ranks got 31 % of the CPU time they needed in the last 5.0 s: 2 cores, ",
            "4 ranks that need 4.0, and pid 812 (ffmpeg) uses 1.8 cores; no rank is to blame",
            "6.2 s on a core, 13.8 s ready without one",
            "`ffmpeg -i talk.mkv`",
            "pressure 71 %",
        ],
    ),
    # one rank alone, on the neighbour's core: the others wait for it, and it is not slow
    notices(
        starved(STUCK, {2: 0.05}),
        ranks=[],
        certain=False,
        saying=["rank 2 got 5 % of the CPU time it needed", "no rank is to blame"],
    ),
    notices(
        slower(ALL, processor=a_processor(quota=2.0, throttled=0.83)),
        ranks=[],
        certain=False,
        saying=["the quota of 2 ran out in 83 % of its periods", "raise the quota"],
        not_saying=["ffmpeg) uses"],
    ),
    notices(
        slower(ALL, processor=a_processor(neighbours=(), pressure=None)),
        ranks=[],
        certain=False,
        saying=["2 cores, 4 ranks that need 4.0; no rank", "OMP_NUM_THREADS"],
    ),
    notices(
        slower(ALL, processor=a_processor(strangers=9, taken=1.94)),
        ranks=[],
        certain=False,
        saying=["9 other processes use 1.9 cores (pid 812 (ffmpeg) uses 1.8 cores)"],
    ),
    # a container does not see who shares its machine
    notices(
        slower(ALL, processor=a_processor(cores=8, neighbours=())),
        ranks=[],
        certain=False,
        saying=["8 cores, 4 ranks, and no other busy process is visible"],
    ),
    notices(
        slower(ALL, processor=Unread(why="/proc is not mounted")),
        ranks=[],
        certain=False,
        saying=["what used it could not be read", "/proc is not mounted"],
    ),
    overlooks(slower(dict.fromkeys(range(4), 0.9))),  # they got what they wanted
    overlooks(slower(ALL, step=0.06)),  # starved as ever, but no slower than it was
    overlooks(slower(ALL, best_step=0.0)),  # its pace is not known yet
    overlooks(slower(ALL, step=1.0)),  # twenty times slower: not by this alone
    overlooks(slower({0: 0.31, 1: 1.0, 2: 1.0, 3: 1.0})),  # most had all they wanted
    overlooks(slower(ALL, processor=None)),  # the machine was not asked yet
    overlooks(STUCK),
    overlooks(starved(STUCK, {0: 0.1, 1: 0.1, 3: 0.1})),  # those who wait, not the one waited for
    overlooks(starved(STUCK, {2: 0.5})),  # 3 s on a core, for steps of 50 ms: it does not step
    overlooks(changed(starved(STUCK, {}), 2, looks=looks(0.1, asked=0.2))),  # it asks for little
    overlooks(changed(starved(STUCK, {}), 2, looks=looks(0.1, seconds=0))),  # one look is none
    # the timeout is the news
    overlooks(starved(held_up({2: {}}, seconds=950.0), {2: 0.0}, started_at=NOW - 999)),
    overlooks(a_scene([*slower(ALL).ranks[:3], ended(3, -9)], best_step=0.05)),
)

CROWDED = (
    "UserWarning: This DataLoader will create 16 worker processes in total. Our suggested max "
    "number "
    "of worker in current system is 4, which is smaller than what this DataLoader is going to "
    "create."
)
LATE = (
    "[rank0]: Watchdog caught collective operation timeout: WorkNCCL(SeqNum=11, OpType=ALLREDUCE, "
    "Timeout(ms)=600000) ran for 600012 milliseconds before timing out."
)

test_explain = explain_table(
    "cpu-contention",
    recognises(
        wreckage(CROWDED, LATE),
        sure=0.3,
        what="16 loader workers per rank on 4 cores",
        saying=["16 workers on 4 cores", "nproc"],
    ),
    passes_over(wreckage(CROWDED)),
    passes_over(wreckage(LATE)),
    passes_over(
        wreckage(CROWDED, LATE, "[rank1]: RuntimeError: CUDA error: invalid device ordinal")
    ),
)
