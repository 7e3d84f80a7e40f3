from __future__ import annotations

from holdfast.analysis.machine import Limit, Limits, ProcessRoom, Unread
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.machines import a_machine, a_plan, limits
from tests.faults.table import (
    check_table,
    explain_table,
    passes_over,
    recognises,
    silent,
    skips,
    speaks,
)


def users(soft: int, hard: int | None = None, **changes: object) -> Limits:
    return limits(nproc=Limit(soft=soft, hard=hard), **changes)


def room(**changes: int | None) -> ProcessRoom:
    healthy: dict[str, int | None] = {
        "user_threads": 200,
        "pids_max": None,
        "pids_current": None,
        "threads_max": 100_000,
        "pid_max": 4_194_304,
    }
    return ProcessRoom(**{**healthy, **changes})  # type: ignore[arg-type]


# Four ranks on 64 cores are estimated at 4 x (64 + 64) = 512 threads.
test_check = check_table(
    "process-limit",
    speaks(
        "error",
        a_machine(limits=users(256, 4096)),
        saying=[
            "only 56 more processes or threads",
            "estimate: 64 and a pool of 64 for each of 4 ranks, 512 in total",
            "ulimit -u 256, and this user runs 200 threads",
            "`ulimit -u 4096`",
            "OMP_NUM_THREADS=1",
        ],
    ),
    speaks(
        "error",  # already over the limit: no negative numbers on screen
        a_machine(limits=users(100, 100)),
        saying=["only 0 more", "ask an administrator for a higher"],
    ),
    speaks(
        "warning",
        a_machine(limits=users(500)),
        saying=["only 300 more", "`ulimit -u unlimited`", "may fail to start threads"],
    ),
    speaks(
        "error",
        a_machine(process_room=room(pids_max=100, pids_current=60)),
        saying=["the cgroup allows 100 processes and threads; 60 are running", "--pids-limit=-1"],
    ),
    speaks(
        "warning",
        a_machine(process_room=room(threads_max=600)),
        saying=["only 400 more", "kernel.threads-max is 600"],
    ),
    speaks(
        "warning",
        a_machine(a_plan(nproc=8), process_room=room(pid_max=1000)),
        saying=["kernel.pid_max is 1000"],
    ),
    speaks(
        "error",
        a_machine(launcher_limits=users(210, pid=77)),
        saying=["the launcher (pid 77) has ulimit -u 210"],
    ),
    silent(a_machine()),
    silent(a_machine(limits=users(100, sys_resource=True))),  # root is exempt
    silent(a_machine(limits=users(712))),
    silent(a_machine(limits=users(500), plan=a_plan(environment={"OMP_NUM_THREADS": "1"}))),
    silent(a_machine(process_room=room(pids_max=4096, pids_current=None))),
    silent(a_machine(launcher_limits=limits(pid=77))),
    skips(a_machine(limits=Unread(why="no /proc")), saying=["no /proc"]),
    skips(a_machine(process_room=Unread(why="no cgroup")), saying=["no cgroup"]),
    skips(a_machine(load=Unread(why="no cores seen")), saying=["no cores seen"]),
    skips(a_machine(launcher_limits=Unread(why="pid 77 is gone")), saying=["is gone"]),
)

test_explain = explain_table(
    "process-limit",
    recognises(
        wreckage("  what():  thread: Resource temporarily unavailable [system:11]"),
        sure=0.95,
        saying=["not start another thread"],
    ),
    recognises(
        wreckage("OMP: System error #11: Resource temporarily unavailable"),
        sure=0.95,
        saying=["OMP_NUM_THREADS=1"],
    ),
    recognises(
        wreckage(
            "ThreadPoolBuildError { kind: IOError(Os { code: 11, kind: WouldBlock, message: "
            '"Resource tempor" }) }'
        ),
        sure=0.95,
        saying=["not start another thread"],
    ),
    passes_over(
        wreckage(
            "OpenBLAS blas_thread_init: pthread_create failed for thread 1 of 8: Operation not "
            "permitted"
        )
    ),
    recognises(
        wreckage(
            "[rank3]: OpenBLAS blas_thread_init: pthread_create failed for thread 63 of 64: "
            "Resource temporarily unavailable"
        ),
        sure=0.95,
        rank=3,
        saying=["not start another thread", "OMP_NUM_THREADS=1", "pids.max"],
    ),
    recognises(
        wreckage("[rank1]: RuntimeError: can't start new thread"),
        sure=0.95,
        rank=1,
        saying=["thread"],
    ),
    recognises(
        wreckage("libgomp: Thread creation failed: Resource temporarily unavailable"),
        sure=0.95,
        saying=["thread"],
    ),
    recognises(
        wreckage("cgroup: fork rejected by pids controller in /system.slice/job.scope"),
        sure=0.95,
        what="pids.max",
        saying=["pids limit of its cgroup"],
    ),
    recognises(
        wreckage("[rank0]: BlockingIOError: [Errno 11] Resource temporarily unavailable"),
        sure=0.65,
        rank=0,
        saying=["a limit on processes was reached"],
    ),
    passes_over(wreckage("NCCL INFO Call to recv returned Resource temporarily unavailable")),
)
