from __future__ import annotations

from tests.faults.table import passes_over, recognise_table, recognises
from tests.remains.made import wreckage

test_recognise = recognise_table(
    "device-ordinal",
    recognises(
        wreckage(
            "[rank4]: RuntimeError: CUDA error: invalid device ordinal",
            settings={"CUDA_VISIBLE_DEVICES": "0,1,2,3"},
        ),
        sure=0.93,
        rank=4,
        saying=["CUDA_VISIBLE_DEVICES=0,1,2,3", "LOCAL_RANK"],
    ),
    recognises(
        wreckage(
            "[rank4]: RuntimeError: device >= 0 && device < num_gpus INTERNAL ASSERT FAILED at "
            '"CUDAContext.cpp":50, device=4, num_gpus=4'
        ),
        sure=0.93,
        rank=4,
        saying=["(4, and there are 4)"],
    ),
    recognises(
        wreckage(
            "MisconfigurationException: You requested gpu: [0, 1, 2, 3]",
            "But your machine only has: [0]",
        ),
        sure=0.93,
        saying=["asked for 0, 1, 2, 3; there is 0"],
    ),
    recognises(
        wreckage("[rank0]: RuntimeError: No CUDA GPUs are available"),
        sure=0.6,
        rank=0,
        saying=["sees no GPU at all"],
    ),
    passes_over(wreckage("[rank0]: RuntimeError: CUDA error: out of memory")),
)
