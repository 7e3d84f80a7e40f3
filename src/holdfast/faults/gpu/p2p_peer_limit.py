"""One machine has more GPUs than can access each other directly.

What you see   `peer mapping resources exhausted` (CUDA error 711, in old versions 60), from NCCL
               as `failed to peer with device …` or `failed to open CUDA IPC handle`, when nine or
               more GPUs of one machine work together.
Why            Without NVSwitch the driver allows each GPU direct connections (peer mappings) to
               eight others at a time. Machines with ten or sixteen PCIe GPUs exceed that, and so
               does a process that opens connections to GPUs it does not need.
How to be sure `nvidia-smi -L | wc -l` is more than eight, and the job runs with
               `CUDA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7`, or with NCCL_P2P_LEVEL=PIX.
Fix            Use at most eight GPUs of a machine in one job (two jobs, or groups of eight); or let
               fewer pairs connect directly: `NCCL_P2P_LEVEL=PIX` limits it to GPUs behind one PCIe
               switch, `NCCL_P2P_DISABLE=1` uses shared memory instead.
Known limits   This is read from logs only; `check` does not count GPUs against the limit.
Sources        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#peer-to-peer-memory-access
               https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html
               https://docs.nvidia.com/deeplearning/nccl/user-guide/docs/env.html#nccl-p2p-level
               https://github.com/NVIDIA/nccl/issues/241
"""

from __future__ import annotations

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Wreckage
from holdfast.fault import Fault
from holdfast.findings import Diagnosis

FAULT = Fault(code="HOLD311", slug="p2p-peer-limit", related=("p2p-acs-iommu", "gpu-hardware"))

EXHAUSTED = FAULT.log_pattern(
    "exhausted",
    r"peer mapping resources exhausted|cudaErrorTooManyPeers|CUDA_ERROR_TOO_MANY_PEERS",
    anchors=("peer mapping resources exhausted", "TooManyPeers", "TOO_MANY_PEERS"),
    example="vm:1009:1009 [0] transport/p2p.cc:486 NCCL WARN failed to peer with device 9(=9): 60 "
    "peer mapping resources exhausted",
)


@FAULT.explain
def peer_mappings_exhausted(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(EXHAUSTED)
    if not seen:
        return None
    return FAULT.diagnosis(
        f"{sightings.who(seen)} opened direct connections from its GPU to more GPUs than the "
        "driver allows (eight without NVSwitch)",
        confidence=0.95,
        seen=seen,
        fix="use at most eight GPUs of this machine in one job, or connect fewer pairs directly: "
        "`export NCCL_P2P_LEVEL=PIX` (or NCCL_P2P_DISABLE=1)",
        next="nvidia-smi -L | wc -l; nvidia-smi topo -m",
    )
