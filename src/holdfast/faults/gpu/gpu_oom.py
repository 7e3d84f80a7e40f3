"""A GPU ran out of memory.

What you see   `torch.OutOfMemoryError: CUDA out of memory. Tried to allocate …` on one rank;
               timeouts and lost connections on the others.
Why            The first rank that requests more than is free raises the error; the others only
               notice that it is gone. Often it is rank 0 (extra copies for saving, logging or
               evaluation), or the rank that got the longest sequences. Memory of another process on
               the same GPU counts too.
How to be sure The message says how much was requested, reserved and free. `nvidia-smi` shows which
               other processes use the GPU. A line `Tried to allocate more than 1EB memory` after a
               timeout is a consequence of a broken collective, not a lack of memory.
Fix            Use a smaller batch, activation checkpointing or sharded optimizer state; load
               checkpoints with map_location="cpu"; bind each rank to its own GPU. For fragmentation
               (reserved far above allocated): PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True.
Known limits   Without the allocator's numbers (NCCL, cuBLAS, plain CUDA calls) holdfast cannot tell
               how full the GPU was or which process held it. It does not predict whether a model
               fits.
Sources        https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
               https://github.com/NVIDIA/nccl/issues/1235
               https://github.com/NVIDIA/nccl/issues/1284
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from holdfast import text
from holdfast.analysis.drill.injection import BreakInside, Injection, Then
from holdfast.analysis.drill.rehearsal import Rehearsal
from holdfast.analysis.job import phrases
from holdfast.analysis.logs import gpu_memory, sightings
from holdfast.analysis.logs.gpu_memory import Shortage
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import gpu_memory as patterns
from holdfast.analysis.logs.patterns.gpu_memory import ALLOCATOR, CUDA_CALL, NUMBERS
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.scene import exits
from holdfast.analysis.scene.exits import Ending
from holdfast.analysis.scene.scene import Scene
from holdfast.fault import Fault, RunTraits
from holdfast.findings import Diagnosis, Verdict

FAULT = Fault(
    code="HOLD308",
    slug="gpu-oom",
    related=("gpu-occupied", "host-oom", "duplicate-gpu"),
    traits=RunTraits(priority=210),
)
FAULT.log_patterns.extend(patterns.ALL)

OUT_OF_MEMORY = re.compile(r"(CUDA|HIP|XPU) out of memory|Cuda failure.*out of memory")


@FAULT.run
def gpu_out_of_memory_first(scene: Scene) -> Verdict | None:
    short = [e for e in exits.cause(scene) if _ran_out_of_gpu_memory(e)]
    if not short:
        return None
    ranks = [e.rank for e in short]
    victims = exits.fallen(scene, ranks)
    words = short[0].view.words
    return FAULT.verdict(
        f"{phrases.who(scene, ranks)} ran out of GPU memory"
        f"{phrases.at_step(short[0].view)}: {phrases.quoted(words) if words else ''}"
        f"{phrases.exited_as_a_result(victims)}",
        ranks=ranks,
        victims=victims,
        certain=True,
        fix="see which processes use that GPU with `nvidia-smi`; use a smaller batch or activation "
        "checkpointing",
        evidence=[phrases.how_it_ended(e) for e in short],
    )


def _ran_out_of_gpu_memory(ending: Ending) -> bool:
    words = ending.view.words
    if words is None or "more than 1EB" in f"{words.text} {words.root_text}":
        return False
    raised = ((words.kind, words.text), (words.root_kind, words.root_text))
    return any(
        kind.endswith("OutOfMemoryError") or OUT_OF_MEMORY.search(text) for kind, text in raised
    )


# --- explain -------------------------------------------------------------------------------------

ABSURD = FAULT.log_pattern(
    "absurd",
    r"Tried to allocate more than 1EB",
    anchors="more than 1EB",
    example="torch.OutOfMemoryError: CUDA out of memory. Tried to allocate more than 1EB memory.",
    # The size came from a broken collective: a consequence, not a lack of memory.
    role=Role.CASCADE,
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


@FAULT.explain
def gpu_out_of_memory(wreckage: Wreckage) -> Diagnosis | None:
    own = wreckage.seen(ALLOCATOR) or wreckage.seen(NUMBERS)
    if own:
        return _from_allocator(wreckage, own)
    outside = 0.4 if gpu_memory.full_at_first_use(wreckage) else 0.65
    for pattern, confidence, what in (
        (NCCL, 0.8, "NCCL found no free GPU memory when it created or extended a communicator"),
        (CUDA_CALL, outside, "a CUDA call outside torch's allocator found no free GPU memory"),
        (CACHE, 0.85, "the model left no GPU memory for vLLM's KV cache"),
        (LIBRARY, 0.0, "a CUDA library could not allocate its workspace on the GPU"),
    ):
        seen = wreckage.seen(pattern)
        if not seen:
            continue
        # Libraries also report 'not initialized' after an earlier error of the same process.
        surely = sightings.field(seen, "what") == "ALLOC_FAILED" or sightings.field(seen, "old")
        likely = bool(sightings.field(seen, "algorithm"))
        return FAULT.diagnosis(
            f"{sightings.who(seen)}: {what}",
            confidence=confidence or (0.7 if surely else 0.55 if likely else 0.4),
            seen=seen,
            fix="leave NCCL and CUDA a gigabyte or two: use a smaller batch, or "
            "torch.cuda.set_per_process_memory_fraction(0.9); make sure that each rank has its "
            "own GPU and that no other process uses it",
            next="nvidia-smi --query-compute-apps=pid,used_memory,gpu_bus_id --format=csv",
            unknown=[
                "how full the GPU was and which process held the memory: the log has no numbers"
            ],
        )
    return None


def _from_allocator(wreckage: Wreckage, seen: Sequence[Sighting]) -> Diagnosis:
    short = gpu_memory.shortage_of(wreckage, seen)
    share = short.foreign_share
    # Without the numbers, other processes may as well have filled it.
    own = 0.95 if short.foreign is not None else 0.8
    confidence = (
        0.4
        if share > gpu_memory.MOSTLY_OTHERS
        else 0.6
        if share > gpu_memory.PARTLY_OTHERS
        else own
    )
    fragments = short.unused is not None and short.tried is not None and short.unused > short.tried
    defragment_first = (
        "first reduce fragmentation: `export PYTORCH_CUDA_ALLOC_CONF="
        "expandable_segments:True`; then "
    )
    return FAULT.diagnosis(
        f"{sightings.who(seen)} ran out of GPU memory{_numbers_in_words(short)}",
        confidence=confidence,
        seen=seen,
        fix=f"{defragment_first if fragments else ''}use a smaller batch or shorter sequences, "
        "activation checkpointing, or sharded parameters and optimizer state; load checkpoints "
        "with map_location='cpu'",
        next="nvidia-smi --query-gpu=index,memory.used,memory.total --format=csv",
        ruled_out=["other processes on that GPU: they hold little memory"]
        if short.foreign is not None and not share
        else [],
        unknown=[] if short.total else ["how full the GPU was: the log has no numbers"],
    )


def _numbers_in_words(short: Shortage) -> str:
    """': it requested 2 GiB when 1 GiB of 79 GiB was free, and held 76 GiB itself'."""
    parts = []
    if short.tried is not None:
        parts.append(f"it requested {text.size(short.tried)}")
    if short.free is not None and short.total is not None:
        where = "" if short.gpu is None else f" on GPU {short.gpu}"
        room = f"{text.size(short.free)} of {text.size(short.total)}{where} was free"
        parts.append(f"when {room}" if parts else room)
    request = " ".join(parts)
    held = "" if short.own is None else f"held {text.size(short.own)} itself"
    numbers = ", and ".join(part for part in (request, held) if part)
    return f": {numbers}" if numbers else ""


@FAULT.drill(needs=("gpu",))
def fill_a_gpu(rehearsal: Rehearsal) -> Injection:
    return Injection(
        does=f"rank {rehearsal.rank} requests more memory than its GPU has {rehearsal.when}",
        act=BreakInside(how="gpu-oom"),
        then=Then.RESTARTS,
    )
