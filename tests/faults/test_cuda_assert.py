from __future__ import annotations

from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [0,0,0], thread: "
    '[32,0,0] Assertion `index >= -sizes[i] && index < sizes[i] && "index out of bounds"` failed.'
)
TRIGGERED = "[rank1]: RuntimeError: CUDA error: device-side assert triggered"

test_recognise = recognise_table(
    "cuda-assert",
    recognises(
        wreckage(ASSERTION, TRIGGERED),
        sure=0.95,
        rank=1,
        what="IndexKernel.cu:92",
        saying=["rank 1", "index < sizes[i]", "an index lies outside its table", "LAUNCH_BLOCKING"],
    ),
    recognises(wreckage(TRIGGERED), sure=0.95, rank=1, saying=["assertion on the GPU"]),
    recognises(
        wreckage(
            "/tmp/torchinductor_u/ab/cd.py:23: unknown: block: [3,0,0], thread: [0,0,0] Assertion "
            "`index out of bounds: 0 <= tmp4 < 50257` failed."
        ),
        sure=0.95,
        what="cd.py:23",
        saying=["tmp4 < 50257"],
    ),
    recognises(
        wreckage("[rank2]: NCCL WARN Cuda failure 700 'an illegal memory access was encountered'"),
        sure=0.55,
        rank=2,
        saying=["mostly a bug in a kernel", "compute-sanitizer"],
    ),
    recognises(
        wreckage("[rank2]: RuntimeError: CUDA error: unspecified launch failure"),
        sure=0.45,
        rank=2,
        saying=["unspecified launch failure"],
    ),
    passes_over(wreckage("train.cpp:12: main: Assertion `batch` failed.")),
    passes_over(wreckage("For debugging consider passing CUDA_LAUNCH_BLOCKING=1")),
)
