from __future__ import annotations

from typing import Any

import msgspec

from holdfast.analysis.machine import CudaFacts, GpuFabric, NvidiaFacts, Unread
from tests.faults.machines import a_machine
from tests.faults.made_gpus import a_gpu, cuda, nvidia
from tests.faults.table import check_table, not_applicable, silent, skips, speaks

replace = msgspec.structs.replace
UNTOLD = Unread(why="late")
WAITING = GpuFabric(state="in progress", status="")


def met(*indices: int, **changes: Any) -> CudaFacts:
    """These GPUs met this; the others work."""
    facts = cuda()
    probes = (replace(p, **changes) if p.index in indices else p for p in facts.probes)
    return replace(facts, probes=tuple(probes))


def failed(code: int, error: str, step: str = "init", *indices: int) -> CudaFacts:
    return met(*(indices or range(4)), code=code, error=error, step=step)


def refusing(code: int, error: str) -> NvidiaFacts:
    return nvidia(error=error, error_code=code, cuda="", gpus=())


HUNG = {"code": -1, "error": "no answer within 15 s", "step": "context", "timed_out": True}

test_check = check_table(
    "gpu-unusable",
    speaks(
        "error",
        a_machine(cuda=failed(999, "CUDA_ERROR_UNKNOWN")),
        saying=["CUDA fails on GPUs 0-3: CUDA_ERROR_UNKNOWN (999)", "modprobe nvidia_uvm"],
    ),
    speaks(
        "error",
        a_machine(cuda=failed(100, "CUDA_ERROR_NO_DEVICE", "init", 2)),
        saying=["GPU 2: CUDA_ERROR_NO_DEVICE (100)", "may not open"],
    ),
    speaks(
        "error",
        a_machine(cuda=failed(214, "CUDA_ERROR_ECC_UNCORRECTABLE", "copy", 1)),
        saying=["memory error", "sudo nvidia-smi -r -i 1", "at 'copy'"],
    ),
    speaks(
        "warning",
        a_machine(cuda=met(3, **HUNG)),
        saying=[
            "GPU 3: no answer within 15 s",
            "did not return from 'context'",
            "slow to start",
            "--deadline 120",
            "nvidia-smi -r -i 3",
        ],
    ),
    speaks(
        "error",
        a_machine(cuda=failed(-1, "data read back from the GPU differs", "copy", 0)),
        saying=["GPU 0: data read back", "bad state"],
        not_saying=["(-1)"],
    ),
    speaks(
        "error",
        a_machine(nvidia=refusing(999, "Unknown Error"), cuda=cuda(0)),
        saying=["cannot be used here: Unknown Error", "daemon-reload"],
    ),
    speaks(
        "error",
        a_machine(nvidia=refusing(4, "Insufficient Permissions"), cuda=cuda(0)),
        saying=["this user may not use", "/dev/nvidiactl"],
    ),
    speaks(
        "error",
        a_machine(nvidia=refusing(-1, "no answer within 9 s"), cuda=cuda(0)),
        saying=["does not answer: no answer within 9 s"],
    ),
    silent(a_machine()),
    silent(a_machine(cuda=met(0, 1, step="init", skipped="another program uses this GPU"))),
    # named by others
    silent(a_machine(cuda=failed(802, "CUDA_ERROR_SYSTEM_NOT_READY"))),
    silent(a_machine(cuda=failed(803, "CUDA_ERROR_SYSTEM_DRIVER_MISMATCH"))),
    silent(a_machine(cuda=failed(-1, "libcuda.so.1: cannot open", "load"))),
    silent(
        a_machine(  # waits for the fabric
            nvidia=nvidia(a_gpu(0, fabric=WAITING)),
            cuda=replace(cuda(1), probes=met(0, **{**HUNG, "step": "init"}).probes[:1]),
        )
    ),
    silent(
        a_machine(
            nvidia=nvidia(*(a_gpu(n, unread="GPU is lost" if n == 2 else "") for n in range(4))),
            cuda=failed(999, "CUDA_ERROR_UNKNOWN", "init", 2),
        )
    ),
    silent(
        a_machine(
            nvidia=nvidia(*(a_gpu(n, mig=n == 2) for n in range(4))),
            cuda=failed(100, "CUDA_ERROR_NO_DEVICE", "init", 2),
        )
    ),
    not_applicable(a_machine(cuda=cuda(0)), saying=["sees no GPU"]),
    not_applicable(a_machine(nvidia=NvidiaFacts(present=False)), saying=["no NVIDIA driver"]),
    skips(a_machine(nvidia=UNTOLD), saying=["late"]),
    skips(a_machine(cuda=UNTOLD), saying=["late"]),
)
