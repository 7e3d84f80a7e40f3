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

TEXT = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.10 GiB"
ABSURD = "CUDA out of memory. Tried to allocate more than 1EB memory."
NCCL = "NCCL error: Cuda failure 2 'out of memory'"

test_run = run_table(
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

test_explain = explain_table(
    "gpu-oom",
    recognises(
        wreckage("torch.cuda.CudaError: out of memory (2)"),
        sure=0.65,
        saying=["found no free GPU memory"],
    ),
    recognises(
        wreckage(
            "[rank1]: torch.OutOfMemoryError: Allocation on device 0 would exceed allowed memory. "
            "(out of memory)"
        ),
        sure=0.8,
        rank=1,
        saying=["ran out of GPU memory"],
    ),
    recognises(
        wreckage(
            "OOM when allocating tensor with shape[32,3] and type float on "
            "/job:localhost/device:GPU:0 by allocator"
        ),
        sure=0.8,
        saying=["ran out of GPU memory"],
    ),
    recognises(
        wreckage("THCudaCheck FAIL file=THCGeneral.cpp line=405 error=2 : out of memory"),
        sure=0.65,
        saying=["found no free GPU memory"],
    ),
    recognises(
        wreckage(
            "MemoryError: std::bad_alloc: out_of_memory: CUDA error at: "
            "/rmm/cuda_memory_resource.hpp"
        ),
        sure=0.65,
        saying=["found no free GPU memory"],
    ),
    recognises(
        wreckage(
            "RuntimeError: cublas runtime error : resource allocation failed at "
            "/pytorch/THCGeneral.cpp:216"
        ),
        sure=0.7,
        saying=["CUDA library"],
    ),
    recognises(
        wreckage("RuntimeError: Unable to find a valid cuDNN algorithm to run convolution"),
        sure=0.55,
        saying=["CUDA library"],
    ),
    recognises(
        wreckage(
            "ValueError: No available memory for the cache blocks. Try increasing "
            "`gpu_memory_utilization`"
        ),
        sure=0.85,
        saying=["no GPU memory for vLLM's KV cache"],
    ),
    passes_over(
        wreckage(
            "OOM when allocating tensor with shape[32,3] and type float on "
            "/job:localhost/device:CPU:0 by allocator"
        )
    ),
    passes_over(wreckage("except torch.cuda.OutOfMemoryError:")),
    recognises(
        wreckage(
            "[rank2]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. "
            "GPU 2 "
            "has a total capacity of 79.10 GiB of which 1.00 GiB is free. Including non-PyTorch "
            "memory, this process has 77.90 GiB memory in use. Of the allocated memory 70.00 GiB "
            "is allocated by PyTorch, and 6.00 GiB is reserved by PyTorch but unallocated.",
            "[rank0]: NCCL WARN socketProgress: Connection closed by remote peer",
        ),
        sure=0.95,
        rank=2,
        saying=[
            "rank 2 ran out of GPU memory: it requested 2 GiB when 1 GiB of 79.1 GiB on GPU 2",
            "was free, and held 77.9 GiB itself",
            "expandable_segments",
        ],
    ),
    recognises(
        wreckage(
            "[rank0]: RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 23.65 "
            "GiB total capacity; 16.85 MiB already allocated; 13.88 MiB free; 18.00 MiB reserved "
            "in total by PyTorch)"
        ),
        sure=0.4,  # gpu-occupied has the better claim
        rank=0,
        saying=["held 18 MiB itself"],
    ),
    recognises(
        wreckage(
            "[rank0]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 256.00 MiB.",
            "[rank0]:   GPU 0 has a total capacity of 21.96 GiB of which 147.12 MiB is free.",
        ),
        sure=0.8,
        rank=0,
        saying=["256 MiB when 147 MiB of 22 GiB on GPU 0 was free"],
    ),
    recognises(
        wreckage(
            "CUDA out of memory. Tried to allocate 20.00 MiB. GPU 0 has a total capacty of 79.15 "
            "GiB of ",
            "which 14.19 MiB is free. Process 22 has 79.12 GiB memory in use. Of the allocated "
            "memory "
            "77.00 GiB is allocated by PyTorch, and 1.50 GiB is reserved by PyTorch but "
            "unallocated.",
        ),
        sure=0.95,
        saying=["20 MiB when 14.2 MiB of 79.2 GiB on GPU 0 was free, and held 78.5 GiB itself"],
    ),
    recognises(
        wreckage("HIP out of memory. Tried to al"), sure=0.8, saying=["ran out of GPU memory"]
    ),
    recognises(
        wreckage("[rank3]: include/alloc.h:185 NCCL WARN Cuda failure 2 'out of memory'"),
        sure=0.8,
        rank=3,
        saying=["NCCL found no free GPU memory"],
    ),
    recognises(
        wreckage("[rank3]: RuntimeError: CUDA error: out of memory"),
        sure=0.65,
        rank=3,
        saying=["outside torch's allocator"],
    ),
    recognises(
        wreckage("CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate(handle)`"),
        sure=0.7,
        saying=["CUDA library"],
    ),
    recognises(
        wreckage("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
        sure=0.4,
        saying=["CUDA library"],
    ),
    passes_over(
        wreckage("[rank0]: OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB m")
    ),
    passes_over(wreckage("Out of memory: Killed process 1011 (python)")),
    passes_over(wreckage("[rank0]: MemoryError")),
)
