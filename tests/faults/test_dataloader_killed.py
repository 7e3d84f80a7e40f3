from __future__ import annotations

from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import a_rank, a_scene, ended, lost_its_peer, words

KILLED = "DataLoader worker (pid 4711) is killed by signal: Killed. "
BUS = (
    "DataLoader worker (pid 7) is killed by signal: Bus error. It is possible that dataloader's "
    "workers are out of shared memory. Please try to raise your shared memory limit."
)
GONE = "DataLoader worker (pid(s) 4711, 4712) exited unexpectedly"

test_notice = notice_table(
    "dataloader-killed",
    notices(
        a_scene([lost_its_peer(0), ended(1, 1, said=words("RuntimeError", KILLED))]),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["a DataLoader worker of rank 1 (pid 4001) was killed (Killed:", "4711", "memory"],
    ),
    notices(
        a_scene([a_rank(0), a_rank(1, words=words("RuntimeError", BUS))]),
        ranks=[1],
        certain=True,
        saying=["Bus error: mostly because /dev/shm is full"],
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
