from __future__ import annotations

from tests.analysis.logs.patterns.made import wreckage
from tests.faults.table import explain_table, passes_over, recognises

OTHERS = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 20.00 MiB. GPU 1 has a "
    "total capacity of 79.10 GiB of which 1.00 MiB is free. Process 4711 has 78.00 GiB memory in "
    "use. Including non-PyTorch memory, this process has 0.90 GiB memory in use. Of the allocated "
    "memory 100.00 MiB is allocated by PyTorch, and 20.00 MiB is reserved by PyTorch but "
    "unallocated."
)
OLD = (
    "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.65 GiB total "
    "capacity; 16.85 MiB already allocated; 13.88 MiB free; 18.00 MiB reserved in total by PyTorch)"
)
OWN = (
    "[rank1]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a "
    "total capacity of 79.10 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this "
    "process has 77.90 GiB memory in use."
)

test_explain = explain_table(
    "gpu-occupied",
    recognises(
        wreckage(OTHERS),
        sure=0.9,
        rank=1,
        what="pid 4711 on GPU 1",
        saying=["others 78.2 GiB (pid 4711 78 GiB)", "this process had 922 MiB", "nvidia-smi"],
    ),
    recognises(
        wreckage(OLD), sure=0.9, what="other processes on GPU 0", saying=["others 23.6 GiB"]
    ),
    recognises(
        wreckage(
            "ValueError: Free memory on device (2.31/79.10 GiB) on startup is less than desired "
            "GPU memory utilization (0.9, 71.19 GiB)."
        ),
        sure=0.8,
        saying=["2.31 of 79.10 GiB was free"],
    ),
    recognises(
        wreckage(
            "[rank2]: RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable"
        ),
        sure=0.7,
        rank=2,
        saying=["exclusive mode"],
    ),
    recognises(
        wreckage("[rank2]: RuntimeError: CUDA error: out of memory"),
        sure=0.5,
        rank=2,
        saying=["may have been full"],
    ),
    passes_over(wreckage(OWN)),
    passes_over(wreckage("[rank0]: CUDA out of memory. Tried to allocate more than 1EB memory.")),
    passes_over(wreckage()),
)
