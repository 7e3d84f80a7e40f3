"""Log lines of a GPU without free memory, which gpu-oom and gpu-occupied both read."""

from __future__ import annotations

from holdfast.analysis.logs.pattern import LogPattern, Role

ALLOCATOR = LogPattern(
    name="gpu-oom: allocator",
    slug="gpu-oom",
    pattern=r"(?:CUDA|HIP|XPU|NPU|MPS backend) out of memory(?!.*more than 1EB)"
    r"|RESOURCE_EXHAUSTED: .*[Oo]ut of memory|torch\.(?:cuda\.)?OutOfMemoryError: (?!.*than 1EB)\S"
    r"|Allocation on device.{0,8} would exceed allowed memory"
    r"|OOM when allocating tensor .{0,300}device:GPU|Out of memory error on GPU \d",
    anchors=(
        "out of memory",
        "Out of memory",
        "torch.OutOfMemoryError",
        "torch.cuda.OutOfMemoryError",
        "would exceed allowed memory",
        "OOM when allocating tensor",
    ),
    example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a "
    "total capacity of 79.10 GiB of which 1.02 GiB is free.",
)
NUMBERS = LogPattern(
    name="gpu-oom: numbers",
    slug="gpu-oom",
    pattern=r"\btotal capac\w+ of [\d.]+ \wi?B|GPU \d+; [\d.]+ \wi?B total capacity"
    r"|[Pp]rocess (?:\d+ )?has [\d.]+ \wi?B memory in use",
    anchors=("total capac", "memory in use"),
    example="GPU 3; 79.10 GiB total capacity; 70.21 GiB already allocated; 1.02 GiB free",
    role=Role.CONTEXT,
)
CUDA_CALL = LogPattern(
    name="gpu-oom: cuda-call",
    slug="gpu-oom",
    pattern=r"(?:CUDA|HIP) (?:driver )?error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
    r"|cudaErrorMemoryAllocation|hipErrorOutOfMemory|cuda runtime error \(2\)"
    r"|error=2 : out of memory|cudaMalloc failed: out of memory|CudaError: out of memory"
    r"|bad_alloc: .{0,20}CUDA error",
    anchors=(
        "error=2 : out of memory",
        "hipErrorOutOfMemory",
        "failed: out of memory",
        "CudaError: out of memory",
        "bad_alloc: ",
        "error: out of memory",
        "CUDA_ERROR_OUT_OF_MEMORY",
        "cudaErrorMemoryAllocation",
        "cuda runtime error (2)",
    ),
    example="RuntimeError: CUDA error: out of memory",
)
AT_FIRST_USE = LogPattern(
    name="gpu-occupied: at-first-use",
    slug="gpu-occupied",
    # The calls that create a process's CUDA context, before it holds any memory.
    pattern=r"(?:cuDevicePrimaryCtxRetain|cuCtxCreate\w{0,8}|cuInit|cudaSetDevice)\b.{0,40}"
    r"(?:CUDA_ERROR_OUT_OF_MEMORY|out of memory)"
    r"|from cudaGetDeviceCount\(\)\..{0,150}Error 2: out of memory",
    anchors=(
        "Error 2: out of memory",
        "cuDevicePrimaryCtxRetain",
        "cuCtxCreate",
        "cuInit",
        "cudaSetDevice",
    ),
    example="failed call to cuDevicePrimaryCtxRetain: CUDA_ERROR_OUT_OF_MEMORY: out of memory",
)
ALL = (ALLOCATOR, NUMBERS, CUDA_CALL)
