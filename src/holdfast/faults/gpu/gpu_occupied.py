"""Other processes hold the GPU's memory.

What you see   `CUDA out of memory. Tried to allocate 20.00 MiB` from a process that itself holds
               almost nothing, or `CUDA error: out of memory` at the first use of the GPU; `all
               CUDA-capable devices are busy or unavailable`; vLLM's `Free memory on device … on
               startup is less than desired GPU memory utilization`.
Why            All processes on a GPU share its memory, first come, first served: another user's
               job, a notebook that was never closed, a leftover process of your own last run, or
               ranks of this job that all selected GPU 0. In exclusive compute mode a single other
               process is enough.
How to be sure The allocator's message adds up: total minus free minus what this process holds is
               what other processes hold; torch from 2.1 names their pids. `nvidia-smi` lists them
               (inside a container only its own).
Fix            Select a free GPU with CUDA_VISIBLE_DEVICES, or ask the owner of the other process.
               End leftover processes of your own run by pid. Bind each rank to the GPU of its
               LOCAL_RANK before anything uses CUDA.
Known limits   holdfast reads this from the allocator's message; `check` does not list the processes
               on a GPU yet. Messages without numbers (`CUDA error: out of memory`) leave open which
               process holds the memory.
Sources        pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp: what the message counts
               https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
               https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-modes
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.logs import gpu_memory, sightings
from holdfast.analysis.logs.gpu_memory import Shortage
from holdfast.analysis.logs.patterns.gpu_memory import ALLOCATOR, CUDA_CALL, NUMBERS
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis

FAULT = Fault(
    code="HOLD307",
    slug="gpu-occupied",
    related=("gpu-oom", "duplicate-gpu", "orphaned-workers", "stale-process"),
)

BUSY = FAULT.log_pattern(
    "busy",
    r"CUDA-capable device\(?s?\)? (?:is/)?are busy or unavailable|cudaErrorDevicesUnavailable",
    anchors=("busy or unavailable", "cudaErrorDevicesUnavailable"),
    example="RuntimeError: CUDA error: all CUDA-capable devices are busy or unavailable",
)
RESERVATION = FAULT.log_pattern(
    "reservation",
    r"Free memory on device (?:\S+ )?\((?P<free>[\d.]+)/(?P<total>[\d.]+) GiB\) on startup is less",
    anchors="on startup is less",
    example="ValueError: Free memory on device (2.31/79.10 GiB) on startup is less than desired "
    "GPU memory utilization (0.9, 71.19 GiB).",
)
LISTING = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,process_name,used_memory --format=csv"


@FAULT.explain
def other_processes_hold_memory(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(ALLOCATOR) or wreckage.seen(NUMBERS)
    if not seen:
        return _without_numbers(wreckage)
    short = gpu_memory.shortage_of(wreckage, seen)
    share = short.foreign_share
    if share <= gpu_memory.PARTLY_OTHERS or short.foreign is None:
        return None
    most = share > gpu_memory.MOSTLY_OTHERS
    return FAULT.diagnosis(
        f"{sightings.who(seen)} found no GPU memory because other processes held it: of "
        f"{text.size(short.total or 0)}{_on_gpu(short)} this process had "
        f"{text.size(short.own or 0)}, others {text.size(short.foreign)}{_pids_and_sizes(short)}",
        confidence=0.9 if most else 0.55,
        seen=seen,
        culprit=_culprit(seen[0], short),
        fix="run on a free GPU (CUDA_VISIBLE_DEVICES), or have their owner end those processes; if "
        "they are ranks of this job, bind each rank to its own GPU first: "
        "`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`",
        next=LISTING,
        unknown=[] if short.others else ["which processes: the message names no other pid"],
    )


def _without_numbers(wreckage: Wreckage) -> Diagnosis | None:
    for pattern, confidence, what in (
        (RESERVATION, 0.8, "the GPU was already in use when the job started"),
        (BUSY, 0.7, "the GPU was not available: it is in exclusive mode, or broken"),
        (CUDA_CALL, 0.5, "the GPU may have been full before this process used it"),
    ):
        seen = wreckage.seen(pattern)
        if not seen:
            continue
        free, total = sightings.field(seen, "free"), sightings.field(seen, "total")
        room = f": {free} of {total} GiB was free" if free else ""
        return FAULT.diagnosis(
            f"{sightings.who(seen, 'a process')}: {what}{room}",
            confidence=confidence,
            seen=seen,
            fix="see which processes use that GPU; select a free one with CUDA_VISIBLE_DEVICES, or "
            "have the owner end the other process",
            next=LISTING,
            unknown=["which process holds it: the log names none"],
        )
    return None


def _culprit(first: Sighting, short: Shortage) -> Culprit:
    """The other processes on the GPU; the rank that found no memory shows where."""
    pids = text.numbers(pid for pid, _ in short.others)
    held = f"pid {pids} on" if pids else "other processes on"
    gpu = "the GPU" if short.gpu is None else f"GPU {short.gpu}"
    return Culprit(what=f"{held} {gpu}", host=first.line.host, rank=first.rank)


def _on_gpu(short: Shortage) -> str:
    return "" if short.gpu is None else f" on GPU {short.gpu}"


def _pids_and_sizes(short: Shortage) -> str:
    named = ", ".join(f"pid {pid} {text.size(size)}" for pid, size in short.others[:4])
    return f" ({named})" if named else ""
