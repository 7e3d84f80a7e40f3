"""A GPU runs out of memory.

What you see   `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …` on one rank;
               timeouts and lost connections on the others.
Why            The first rank to ask for more than is left raises; the others only notice that it
               is gone. Often it is rank 0 (extra copies for saving, logging or evaluation), or the
               rank that got the longest sequences. Another process on the same GPU counts too.
How to be sure The message says how much was asked for, reserved and free. `nvidia-smi` shows who
               else is there. A line `Tried to allocate more than 1EB memory` after a timeout is
               fallout of a broken collective and no lack of memory.
Fix            A smaller batch, activation checkpointing, sharded optimizer state; load checkpoints
               with map_location="cpu"; bind one device a rank. Fragmentation (reserved far above
               allocated): PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
Sources        https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
               https://github.com/NVIDIA/nccl/issues/1235
               https://github.com/NVIDIA/nccl/issues/1284
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import gpu_memory, sightings
from holdfast.analysis.logs.gpu_memory import Shortage
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Diagnosis, Verdict

FAULT = Fault(code="HOLD308", slug="gpu-oom", traits=RunTraits(priority=210))

TEXT = re.compile(r"(CUDA|HIP|XPU) out of memory|Cuda failure.*out of memory")


@FAULT.run
def it_was_out_of_gpu_memory_first(scene: Scene) -> Verdict | None:
    short = [e for e in exits.cause(scene) if _short_of_memory(e)]
    if not short:
        return None
    ranks = [e.rank for e in short]
    victims = exits.fallen(scene, ranks)
    words = short[0].view.words
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} ran out of GPU memory"
        f"{phrases.at_step(short[0].view)}: {phrases.quoted(words) if words else ''}"
        f"{phrases.fell_with(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="see who holds memory there with `nvidia-smi`; a smaller batch or activation "
        "checkpointing needs less",
        evidence=[phrases.how_it_ended(e) for e in short],
    )


def _short_of_memory(ending: Ending) -> bool:
    words = ending.view.words
    if words is None or "more than 1EB" in words.text:
        return False
    return words.kind.endswith("OutOfMemoryError") or bool(TEXT.search(words.text))


# --- from the wreckage of a job ----------------------------------------------------------------

ALLOCATOR = FAULT.log_pattern(
    "allocator",
    r"(?:CUDA|HIP|XPU|NPU|MPS backend) out of memory(?!.*more than 1EB)"
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
NUMBERS = FAULT.log_pattern(
    "numbers",
    r"\btotal capac\w+ of [\d.]+ \wi?B|GPU \d+; [\d.]+ \wi?B total capacity"
    r"|[Pp]rocess (?:\d+ )?has [\d.]+ \wi?B memory in use",
    anchors=("total capac", "memory in use"),
    example="GPU 3; 79.10 GiB total capacity; 70.21 GiB already allocated; 1.02 GiB free",
    role=Role.CONTEXT,
)
ABSURD = FAULT.log_pattern(
    "absurd",
    r"Tried to allocate more than 1EB",
    anchors="more than 1EB",
    example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
    # The size came out of a broken collective: fallout, and no lack of memory.
    role=Role.CASCADE,
)
CUDA_CALL = FAULT.log_pattern(
    "cuda-call",
    r"(?:CUDA|HIP) (?:driver )?error: out of memory|CUDA_ERROR_OUT_OF_MEMORY"
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
NCCL = FAULT.log_pattern(
    "nccl",
    r"[Cc]uda failure (?:\d+ )?'out of memory'|Failed to CUDA (?:calloc(?: async)?|malloc) \d+",
    anchors=("'out of memory'", "Failed to CUDA "),
    example="vm:1011:1011 [2] include/alloc.h:185 NCCL WARN Cuda failure 2 'out of memory'",
)
LIBRARY = FAULT.log_pattern(
    "library",
    r"(?:CUBLAS|CUDNN|CUSOLVER|CUSPARSE|CUFFT)_(?:STATUS_)?(?P<what>ALLOC_FAILED|NOT_INITIALIZED)"
    r"|cublas runtime error : (?P<old>resource allocation failed)"
    r"|Unable to find a (?P<algorithm>valid cuDNN algorithm) to run convolution"
    r"|unable to find an engine to execute this computation",
    anchors=(
        "_ALLOC_FAILED",
        "_NOT_INITIALIZED",
        "resource allocation failed",
        "valid cuDNN algorithm",
        "find an engine to execute this",
    ),
    example="RuntimeError: CUDA error: CUBLAS_STATUS_ALLOC_FAILED when calling `cublasCreate`",
)
CACHE = FAULT.log_pattern(
    "cache",
    r"No available memory for the cache blocks|larger than the maximum number of tokens that can "
    r"be stored in KV cache",
    anchors=("memory for the cache blocks", "that can be stored in KV cache"),
    example="ValueError: No available memory for the cache blocks. Try increasing "
    "`gpu_memory_utilization` when initializing the engine.",
)
TAKEN_BY_OTHERS = 0.5
"""share of the GPU: more than the half held by others is not this job's appetite"""
SHARED = 0.2


@FAULT.explain
def it_asked_for_more_than_was_left(wreckage: Wreckage) -> Diagnosis | None:
    own = wreckage.seen(ALLOCATOR) or wreckage.seen(NUMBERS)
    if own:
        return _by_the_allocator(wreckage, own)
    for signature, confidence, what in (
        (NCCL, 0.8, "NCCL found no room on the GPU when it made or enlarged a communicator"),
        (CUDA_CALL, 0.65, "a CUDA call outside torch's allocator found no room on the GPU"),
        (CACHE, 0.85, "the model left no room on the GPU for the cache that vLLM needs beside it"),
        (LIBRARY, 0.0, "a CUDA library could not get its workspace on the GPU"),
    ):
        seen = wreckage.seen(signature)
        if not seen:
            continue
        # Libraries also say 'not initialized' after an earlier error of the same process.
        surely = sightings.field(seen, "what") == "ALLOC_FAILED" or sightings.field(seen, "old")
        likely = bool(sightings.field(seen, "algorithm"))
        return FAULT.diagnosis(
            f"{sightings.who(seen)}: {what}",
            confidence=confidence or (0.7 if surely else 0.55 if likely else 0.4),
            seen=seen,
            fix="leave NCCL and CUDA a gigabyte or two: a smaller batch, or "
            "torch.cuda.set_per_process_memory_fraction(0.9); make sure that each rank sits on a "
            "GPU of its own and that nobody else does",
            next="nvidia-smi --query-compute-apps=pid,used_memory,gpu_bus_id --format=csv",
            unknown=["how full the GPU was, and who held it: the text has no numbers"],
        )
    return None


def shortage(wreckage: Wreckage, seen: Sequence[Sighting]) -> Shortage:
    """The numbers of the first rank that ran short; long messages may be broken into lines."""
    first = seen[0].line
    more = [
        one.line.text
        for one in wreckage.seen(NUMBERS)
        if one.rank == first.rank and one.line.source == first.source
        if 0 <= one.line.number - first.number < 4 and one.line.number != first.number
    ]
    return gpu_memory.read([first.text, *more])


def _by_the_allocator(wreckage: Wreckage, seen: Sequence[Sighting]) -> Diagnosis:
    short = shortage(wreckage, seen)
    share = short.foreign_share
    # Without the numbers somebody else's processes may as well have filled it.
    own = 0.95 if short.foreign is not None else 0.8
    confidence = 0.4 if share > TAKEN_BY_OTHERS else 0.6 if share > SHARED else own
    fragments = short.unused is not None and short.tried is not None and short.unused > short.tried
    defragment = (
        "much of torch's memory is held in pieces: `export PYTORCH_CUDA_ALLOC_CONF="
        "expandable_segments:True`; then "
    )
    return FAULT.diagnosis(
        f"{sightings.who(seen)} ran out of GPU memory{_numbers(short)}",
        confidence=confidence,
        seen=seen,
        fix=f"{defragment if fragments else ''}use a smaller batch or shorter sequences, "
        "activation checkpointing, or sharded parameters and optimizer state; load checkpoints "
        "with map_location='cpu'",
        next="nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv",
        ruled_out=["other processes on that GPU: they hold little"]
        if short.foreign is not None and not share
        else [],
        unknown=[] if short.total else ["how full the GPU was: the text has no numbers"],
    )


def _numbers(short: Shortage) -> str:
    """': it asked for 2 GiB when 1 GiB of 79 GiB was free, and held 76 GiB itself'."""
    parts = []
    if short.tried is not None:
        parts.append(f"it asked for {text.size(short.tried)}")
    if short.free is not None and short.total is not None:
        where = "" if short.gpu is None else f" of GPU {short.gpu}"
        room = f"{text.size(short.free)} of {text.size(short.total)}{where} was free"
        parts.append(f"when {room}" if parts else room)
    said = " ".join(parts)
    if short.own is not None:
        said += f", and held {text.size(short.own)} itself"
    return f": {said.removeprefix(', and ')}" if said else ""
