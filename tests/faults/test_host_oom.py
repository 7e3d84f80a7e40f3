from __future__ import annotations

from typing import Any

import msgspec

from holdfast.catalogue import by_slug
from holdfast.facts import Cgroup, HostLoad, KernelEvent, Unread
from holdfast.model import Status
from tests.faults.machines import GIB, a_machine, a_plan
from tests.faults.table import (
    foresee_table,
    notice_table,
    notices,
    overlooks,
    silent,
    skips,
    speaks,
)
from tests.job.scenes import a_rank, a_scene, ended, lost_its_peer

HEALTHY = a_machine()


def cgroup(**changes: Any) -> Cgroup:
    assert isinstance(HEALTHY.cgroup, Cgroup)
    return msgspec.structs.replace(HEALTHY.cgroup, **changes)


def memory(available: int, total: int = 512 * GIB) -> HostLoad:
    assert isinstance(HEALTHY.load, HostLoad)
    return msgspec.structs.replace(HEALTHY.load, memory_available=available, memory_total=total)


def killed(seconds_ago: float | None) -> KernelEvent:
    text = "Out of memory: Killed process 4711 (python) total-vm:9000000kB"
    return KernelEvent(kind="oom", text=text, seconds_ago=seconds_ago)


test_foresee = foresee_table(
    "host-oom",
    speaks(
        "warning",
        a_machine(cgroup=cgroup(oom_kills=2, memory_limit=64 * GIB)),
        saying=["2 processes in this cgroup died", "it may use 64 GiB", "oom_kill 2"],
    ),
    speaks(
        "note",  # no limit, no date: nothing to act on
        a_machine(cgroup=cgroup(oom_kills=1)),
        saying=["1 process in this cgroup died", "may be long ago"],
    ),
    speaks(
        "warning",
        a_machine(kernel_log=(killed(7200.0),)),
        saying=["killed 1 times", "Killed process 4711 (python)", "2 hours ago"],
    ),
    speaks("warning", a_machine(kernel_log=(killed(None),)), saying=["Killed process 4711"]),
    speaks(
        "note",
        a_machine(kernel_log=(killed(9 * 86400.0),)),
        saying=["not within the last day", "9 days ago"],
    ),
    speaks(
        "warning",
        a_machine(load=memory(2 * GIB, 16 * GIB)),
        saying=["only 2 GiB of memory is available for 4 ranks", "estimate: a rank takes 1 GiB"],
    ),
    speaks("warning", a_machine(load=memory(12 * GIB)), saying=["available 12 GiB of 512 GiB"]),
    speaks(
        "warning",
        a_machine(cgroup=cgroup(memory_limit=2 * GIB)),
        saying=["this cgroup may use 2 GiB of memory, little for 4 ranks"],
    ),
    speaks(
        "warning",
        a_machine(cgroup=cgroup(memory_limit=64 * GIB, memory_pressure=40.0)),
        saying=["already wait for memory", "40 % of the last minute"],
    ),
    speaks(
        "note",  # it may all be file cache
        a_machine(cgroup=cgroup(memory_limit=64 * GIB, memory_used=63 * GIB)),
        saying=["has used 63 GiB of 64 GiB", "file cache"],
    ),
    silent(a_machine()),
    silent(a_machine(a_plan(nproc=8), load=memory(40 * GIB, 2048 * GIB))),  # 2 %, yet plenty
    silent(a_machine(cgroup=cgroup(memory_limit=64 * GIB, memory_used=None))),
    silent(a_machine(kernel_log=(KernelEvent(kind="xid", text="Xid 79", seconds_ago=1.0),))),
    skips(a_machine(kernel_log=Unread(why="dmesg_restrict=1")), saying=["dmesg_restrict"]),
    skips(a_machine(cgroup=Unread(why="no cgroup")), saying=["no cgroup"]),
    skips(a_machine(cgroup=cgroup(oom_kills=None)), saying=["does not count"]),
    skips(a_machine(load=Unread(why="no meminfo")), saying=["no meminfo"]),
)


def test_an_unreadable_log_does_not_hide_what_the_cgroup_counted() -> None:
    machine = a_machine(
        kernel_log=Unread(why="not permitted"), cgroup=cgroup(oom_kills=1, memory_limit=64 * GIB)
    )
    seen = {finding.status for finding in by_slug("host-oom").look_at(machine)}
    assert seen == {Status.SKIPPED, Status.WARNING, Status.OK}


KILLED = [lost_its_peer(0), ended(1, -9)]
LINE = "Memory cgroup out of memory: Killed process 4001 (python) total-vm:9kB"
UNREAD = Unread(why="kernel log not readable: not by this user (dmesg_restrict)")

test_notice = notice_table(
    "host-oom",
    notices(
        a_scene(KILLED, oom_kills=1),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["rank 1 (pid 4001) was killed by the kernel for lack of memory", "oom_kill 1"],
    ),
    notices(
        a_scene(KILLED, oom_kills=-1, kernel_events=(LINE,)),
        ranks=[1],
        certain=True,
        saying=[LINE],
    ),
    notices(
        a_scene(KILLED, oom_kills=1, kernel_events=UNREAD),
        ranks=[1],
        certain=True,
        saying=["oom_kill 1", "kernel log not readable"],
    ),
    # an unreadable log proves nothing
    overlooks(a_scene(KILLED, oom_kills=-1, kernel_events=UNREAD)),
    # its thread's or its child's end is not its own
    overlooks(a_scene(KILLED, kernel_events=(f"{LINE.replace('4001', '77')} (of pid 4001)",))),
    overlooks(a_scene()),
    overlooks(a_scene(KILLED)),
    overlooks(a_scene(KILLED, kernel_events=(LINE.replace("4001", "14001"),))),
    overlooks(a_scene([a_rank(0), ended(1, -11)], oom_kills=1)),
)
