from __future__ import annotations

from tests.faults.table import notice_table, notices, overlooks
from tests.job.scenes import a_rank, a_scene, ended, lost_its_peer, words

TEXT = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
ABSURD = "CUDA out of memory. Tried to allocate more than 1EB memory."
NCCL = "NCCL error: Cuda failure 2 'out of memory'"

test_notice = notice_table(
    "gpu-oom",
    notices(
        a_scene([lost_its_peer(0), ended(1, 1, said=words("OutOfMemoryError", TEXT))]),
        ranks=[1],
        victims=[0],
        certain=True,
        saying=["rank 1 (pid 4001) ran out of GPU memory after step 100", "2.00 GiB", "nvidia-smi"],
    ),
    notices(
        a_scene([a_rank(0), a_rank(1, words=words("DistBackendError", NCCL))]),
        ranks=[1],
        certain=True,
        saying=["GPU memory"],
    ),
    overlooks(a_scene()),
    overlooks(a_scene([a_rank(0), a_rank(1, words=words("OutOfMemoryError", ABSURD))])),
    overlooks(a_scene([a_rank(0), a_rank(1, words=words("MemoryError", "out of memory"))])),
)
