from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

ASSERTION = (
    "/pytorch/aten/src/ATen/native/cuda/IndexKernel.cu:92: operator(): block: [0,0,0], thread: "
    '[32,0,0] Assertion `index >= -sizes[i] && index < sizes[i] && "index out of bounds"` failed.'
)
TRIGGERED = "[rank1]: RuntimeError: CUDA error: device-side assert triggered"

test_explain = explain_table(
    "cuda-assert",
    recognises(
        wreckage(
            "unknown:0: unknown: block: [0,0,0], thread: [31,0,0] Assertion `index out of bounds: "
            "0 <= tmp4 < 16000` failed."
        ),
        sure=0.95,
        what="unknown:0",
        saying=["an index is out of range"],
    ),
    recognises(
        wreckage(
            "/w/aten/src/ATen/native/cuda/Indexing.cu:975: indexSelectLargeIndex: block: [1,0,0], "
            "thread: [2,0,0] Assertion `srcIndex < srcSelectDimSize"
        ),
        sure=0.95,
        what="Indexing.cu:975",
        saying=["srcIndex < srcSelectDimSize"],
    ),
    recognises(
        wreckage(
            "/w/Loss.hip:123: operator(): Device-side assertion `t >= 0 && t < n_classes' failed."
        ),
        sure=0.95,
        what="Loss.hip:123",
        saying=["a label is out of range"],
    ),
    recognises(
        wreckage(
            "Memory access fault by GPU node-2 (Agent handle: 0x55) on address 0x7f00. Reason: "
            "Unknown."
        ),
        sure=0.55,
        saying=["usually a bug in a kernel"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: CUDA error: the launch timed out and was terminated"),
        sure=0.4,
        rank=0,
        saying=["longer than the driver allows", "display"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: cuDNN error: CUDNN_STATUS_EXECUTION_FAILED"),
        sure=0.45,
        rank=0,
        saying=["EXECUTION_FAILED"],
    ),
    passes_over(wreckage("train.cu:12: host code Assertion `n > 0` failed.")),
    recognises(
        wreckage(ASSERTION, TRIGGERED),
        sure=0.95,
        rank=1,
        what="IndexKernel.cu:92",
        saying=[
            "rank 1",
            "index < sizes[i]",
            "an index is out of range for its table",
            "LAUNCH_BLOCKING",
        ],
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
        saying=["usually a bug in a kernel", "compute-sanitizer"],
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
