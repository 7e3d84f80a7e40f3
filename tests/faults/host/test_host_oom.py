from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.logs.wreckage import Exit, LogLine, RankRemains
from holdfast.analysis.machine import Cgroup, HostLoad, KernelEvent, Unread
from holdfast.catalogue import by_slug
from holdfast.findings import Status
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import GIB, a_machine, a_plan
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
from tests.run.scenes import a_rank, a_scene, ended, lost_its_peer

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


test_check = check_table(
    "host-oom",
    speaks(
        "warning",
        a_machine(cgroup=cgroup(oom_kills=2, memory_limit=64 * GIB)),
        saying=["ended 2 processes in this cgroup", "its limit of 64 GiB", "oom_kill 2"],
    ),
    speaks(
        "note",  # no limit, no date: nothing to act on
        a_machine(cgroup=cgroup(oom_kills=1)),
        saying=["ended 1 process in this cgroup", "may be long ago"],
    ),
    speaks(
        "warning",
        a_machine(kernel_log=(killed(7200.0),)),
        saying=[
            "the kernel's OOM killer ended 1 process in the last day",
            "Killed process 4711 (python)",
            "2 hours ago",
        ],
    ),
    speaks("warning", a_machine(kernel_log=(killed(None),)), saying=["Killed process 4711"]),
    speaks(
        "note",
        a_machine(kernel_log=(killed(9 * 86400.0),)),
        saying=["ended 1 process, none in the last day", "9 days ago"],
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
        "note",  # it may all be page cache
        a_machine(cgroup=cgroup(memory_limit=64 * GIB, memory_used=63 * GIB)),
        saying=["has used 63 GiB of 64 GiB", "page cache"],
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
    seen = {finding.status for finding in by_slug("host-oom").ask_check(machine)}
    assert seen == {Status.SKIPPED, Status.WARNING, Status.OK}


KILLED = [lost_its_peer(0), ended(1, -9)]
LINE = "Memory cgroup out of memory: Killed process 4001 (python) total-vm:9kB"
UNREAD = Unread(why="kernel log not readable: not by this user (dmesg_restrict)")

test_run = run_table(
    "host-oom",
    notices(
        a_scene(KILLED, oom_kills=1),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["rank 1 (pid 4001) was killed by the kernel's OOM killer", "oom_kill 1"],
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

OOM_LINE = "Memory cgroup out of memory: Killed process 1011 (python) total-vm:24117248kB"


def sigkill(rank: int | None, *, teardown: bool = False) -> Exit:
    line = LogLine(text="failed (exitcode: -9)", source="job.log", number=9)
    return Exit(code=-9, line=line, rank=rank, pid=1011, teardown=teardown)


test_explain = explain_table(
    "host-oom",
    recognises(
        wreckage(
            "slurmstepd: error: Step 123.0 exceeded memory limit (16778000 > 16777216), being "
            "killed"
        ),
        sure=0.95,
        what="memory limit",
        saying=["was OOM-killed"],
    ),
    recognises(
        wreckage("=>> PBS: job killed: mem 262144000kb exceeded limit 256000000kb"),
        sure=0.95,
        what="memory limit",
        saying=["was OOM-killed"],
    ),
    passes_over(wreckage("MemoryError: Cannot allocate write+execute memory for ffi.callback()")),
    passes_over(wreckage("set the memory limit of the cache to 4 GB")),
    recognises(
        wreckage(
            "Memory on the node (IP: 192.0.2.7, ID: ba65) where the task (task ID: d2, name=head, "
            "pid=4503, memory used"
        ),
        sure=0.95,
        what="memory limit",
        saying=["was OOM-killed"],
    ),
    recognises(
        wreckage("Warning  OOMKilling  node/a  Memory cgroup limit"),
        sure=0.95,
        what="memory limit",
        saying=["was OOM-killed"],
    ),
    passes_over(
        wreckage(
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: "
            "/rmm/cuda_memory_resource.hpp"
        )
    ),
    recognises(
        wreckage(OOM_LINE, ranks=(RankRemains(rank=2, pid=1011, host="node7"),)),
        sure=0.97,
        rank=2,
        saying=["the kernel's OOM killer ended rank 2 (pid 1011)", "its cgroup", "dmesg"],
    ),
    recognises(
        wreckage(OOM_LINE.replace("1011", "77"), exits=(sigkill(3),)),
        sure=0.9,
        rank=3,
        saying=["rank 3 died of SIGKILL"],
    ),
    recognises(
        wreckage("Out of memory: Killed process 88 (chrome)", "[rank0]: CUDA out of memory."),
        sure=0.6,  # a stranger's death beside another trouble
        what="chrome (pid 88)",
        saying=["chrome"],
    ),
    recognises(
        wreckage("srun: error: node7: task 3: Out Of Memory"),
        sure=0.95,
        rank=3,
        saying=["task 3 on node7", "sacct"],
    ),
    recognises(
        wreckage("slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step"),
        sure=0.95,
        what="memory limit",
        saying=["the limit of the job"],
    ),
    recognises(
        wreckage("      Reason:       OOMKilled"),
        sure=0.95,
        what="memory limit",
        saying=["kubectl"],
    ),
    recognises(
        wreckage("[rank1]: RuntimeError: DefaultCPUAllocator: can't allocate memory: you tried to"),
        sure=0.9,
        rank=1,
        saying=["not GPU memory"],
    ),
    recognises(
        wreckage("[rank1]: OSError: [Errno 12] Cannot allocate memory"),
        sure=0.7,
        rank=1,
        saying=["could not allocate host memory"],
    ),
    recognises(wreckage(exits=(sigkill(2),)), sure=0.4, rank=2, saying=["nothing here proves it"]),
    recognises(
        wreckage("[rank1]: RuntimeError: DataLoader worker (pid 9) is killed by signal: Killed. "),
        sure=0.5,
        rank=1,
        what="DataLoader worker",
        saying=["a loader worker of rank 1"],
    ),
    passes_over(wreckage(exits=(sigkill(2, teardown=True),))),
    passes_over(
        wreckage("[rank1]: NCCL WARN Call to ibv_reg_mr failed with error [Errno 12] Cannot")
    ),
    passes_over(wreckage("[rank1]: torch.OutOfMemoryError: CUDA out of memory.")),
)
