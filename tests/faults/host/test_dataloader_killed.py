from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import (
    explain_table,
    notices,
    overlooks,
    passes_over,
    recognises,
    run_table,
)
from tests.run.scenes import a_rank, a_scene, ended, lost_its_peer, words

KILLED = "DataLoader worker (pid 4711) is killed by signal: Killed. "
BUS = (
    "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
GONE = "DataLoader worker (pid(s) 4711, 4712) exited unexpectedly"

test_run = run_table(
    "dataloader-killed",
    notices(
        a_scene([lost_its_peer(0), ended(1, 1, said=words("RuntimeError", KILLED))]),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=[
            "a DataLoader worker of rank 1 (pid 4001) was killed (Killed:",
            "4711",
            "no cgroup OOM kill: something else sent SIGKILL",
        ],
        not_saying=["OOM killer"],
    ),
    notices(
        a_scene([ended(1, 1, said=words("RuntimeError", KILLED))], oom_kills=2),
        ranks=[1],
        certain=True,
        saying=["(Killed: the kernel's OOM killer: cgroup oom_kill 2 since the start)"],
    ),
    notices(
        a_scene([ended(1, 1, said=words("RuntimeError", KILLED))], oom_kills=-1),
        ranks=[1],
        certain=True,
        saying=["(Killed: usually the kernel's OOM killer)"],
    ),
    notices(
        a_scene([a_rank(0), a_rank(1, words=words("RuntimeError", BUS))]),
        ranks=[1],
        certain=True,
        saying=["Bus error: usually a full /dev/shm"],
    ),
    notices(
        a_scene([a_rank(0), a_rank(1, words=words("RuntimeError", GONE))]),
        ranks=[1],
        certain=True,
        saying=["exited"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([a_rank(0), a_rank(1, words=words("RuntimeError", "worker died"))])),
)

DIED = "[rank1]: RuntimeError: DataLoader worker (pid 4711) is killed by signal: {}. "

test_explain = explain_table(
    "dataloader-killed",
    recognises(
        wreckage("ERROR: Unexpected segmentation fault encountered in worker."),
        sure=0.9,
        what="DataLoader worker",
        saying=["native code in the dataset crashed"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: DataLoader worker (pid 2978) is killed by"),
        sure=0.85,
        rank=0,
        what="DataLoader worker pid 2978",
        saying=["was killed"],
    ),
    recognises(
        wreckage(
            "[rank0]: RuntimeError: One or more background workers are no longer alive. Exiting. "
            "Please check"
        ),
        sure=0.75,
        rank=0,
        what="data worker",
        saying=["its parent does not know why", "nnUNet_n_proc_DA"],
    ),
    recognises(
        wreckage(
            "RuntimeError: One of the subprocesses has abruptly died during map operation.To debug "
            "the error"
        ),
        sure=0.75,
        what="data worker",
        saying=["the kernel's OOM killer"],
    ),
    recognises(
        wreckage(
            "RuntimeError: Some background workers are no longer alive",
            "OSError: [Errno 24] Too many open files",
        ),
        sure=0.5,
        what="data worker",
        saying=["its parent does not know why"],
    ),
    passes_over(wreckage("SystemError: DataLoader process (pid 7) started")),
    recognises(
        wreckage(DIED.format("Killed")),
        sure=0.9,
        rank=1,
        what="DataLoader worker pid 4711",
        saying=[
            "(pid 4711) of rank 1 died of a signal (Killed: usually the kernel's OOM killer",
            "fewer workers",
        ],
    ),
    recognises(
        wreckage(
            DIED.format("Killed"), "Memory cgroup out of memory: Killed process 4711 (pt_data)"
        ),
        sure=0.97,
        rank=1,
        saying=["killed by the kernel's OOM killer"],
    ),
    recognises(
        wreckage(DIED.format("Bus error")),
        sure=0.6,  # shm-too-small has the better claim
        rank=1,
        saying=["/dev/shm"],
    ),
    recognises(
        wreckage(DIED.format("Segmentation fault")), sure=0.9, rank=1, saying=["num_workers=0"]
    ),
    recognises(
        wreckage("RuntimeError: DataLoader worker (pid(s) 10, 11) exited unexpectedly"),
        sure=0.85,
        what="DataLoader worker pid 10, 11",
        saying=["exited without a message"],
    ),
    recognises(
        wreckage(
            "DataLoader worker (pid 77) exited unexpectedly with exit code 1. Details are lost"
        ),
        sure=0.85,
        saying=["exited with code 1"],
    ),
    recognises(
        wreckage("RuntimeError: DataLoader worker (pid xxx) is killed by signal: Killed"),
        sure=0.9,
        what="DataLoader worker",
        saying=["a DataLoader worker of a rank died of a signal (Killed"],
    ),
    passes_over(wreckage(DIED.format("Terminated"))),
    passes_over(wreckage(DIED.format("Interrupt"))),
    passes_over(wreckage("KeyError: Caught KeyError in DataLoader worker process 0.")),
)
