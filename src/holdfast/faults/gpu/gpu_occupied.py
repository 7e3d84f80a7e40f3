"""Somebody else holds the GPU's memory.

What you see   `CUDA out of memory. Tried to allocate 20.00 MiB` from a process that itself holds
               next to nothing, or `CUDA error: out of memory` at the first touch of the GPU;
               `all CUDA-capable devices are busy or unavailable`; vLLM's `Free memory on device …
               on startup is less than desired GPU memory utilization`.
Why            Memory of a GPU is first come, first served among all processes on it: a
               colleague's job, a notebook that was never closed, a survivor of your own last run,
               or ranks of this job that all chose GPU 0. In exclusive compute mode a single other
               process is enough.
How to be sure The allocator's message adds up: total, less free, less what this process holds, is
               what others hold; torch from 2.1 names their pids. `nvidia-smi` lists them (inside a
               container only its own).
Fix            Choose a free GPU by CUDA_VISIBLE_DEVICES, or ask the owner. Survivors of your own
               run may be ended by their pid. Bind each rank to the GPU of its LOCAL_RANK before
               anything touches CUDA.
Sources        pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp: what the message counts
               https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
               https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-modes
"""

from __future__ import annotations

from holdfast import text
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.gpu_memory import Shortage
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.fault import Fault
from holdfast.faults.gpu import gpu_oom
from holdfast.findings import Culprit, Diagnosis

FAULT = Fault(code="HOLD307", slug="gpu-occupied")

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
def others_hold_the_memory(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(gpu_oom.ALLOCATOR) or wreckage.seen(gpu_oom.NUMBERS)
    if not seen:
        return _without_numbers(wreckage)
    short = gpu_oom.shortage(wreckage, seen)
    share = short.foreign_share
    if share <= gpu_oom.SHARED or short.foreign is None:
        return None
    most = share > gpu_oom.TAKEN_BY_OTHERS
    return FAULT.diagnosis(
        f"{sightings.who(seen)} found no GPU memory because others hold it: of "
        f"{text.size(short.total or 0)}{_where(short)} this process had "
        f"{text.size(short.own or 0)}, others {text.size(short.foreign)}{_named(short)}",
        confidence=0.9 if most else 0.55,
        seen=seen,
        culprit=_culprit(seen[0], short),
        fix="run on a free GPU (CUDA_VISIBLE_DEVICES), or have those processes ended by their "
        "owner; if they are ranks of this very job, bind each one to its own GPU first: "
        "`torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`",
        next=LISTING,
        unknown=[] if short.others else ["who they are: the message names no other process"],
    )


def _without_numbers(wreckage: Wreckage) -> Diagnosis | None:
    for signature, confidence, what in (
        (RESERVATION, 0.8, "the GPU was already in use when the job started"),
        (BUSY, 0.7, "the GPU could not be taken: in exclusive mode, or out of order"),
        (gpu_oom.CUDA_CALL, 0.5, "the GPU may have been full before this process touched it"),
    ):
        seen = wreckage.seen(signature)
        if not seen:
            continue
        free, total = sightings.field(seen, "free"), sightings.field(seen, "total")
        room = f": {free} of {total} GiB was free" if free else ""
        return FAULT.diagnosis(
            f"{sightings.who(seen, 'a process')}: {what}{room}",
            confidence=confidence,
            seen=seen,
            fix="look who is on that GPU; choose a free one by CUDA_VISIBLE_DEVICES, or have the "
            "other process ended by its owner",
            next=LISTING,
            unknown=["who holds it: the text names nobody"],
        )
    return None


def _culprit(first: Sighting, short: Shortage) -> Culprit:
    """The others on the GPU; the rank that found no room is their victim, and shows where."""
    pids = text.numbers(pid for pid, _ in short.others)
    held = f"pid {pids} on" if pids else "other processes on"
    gpu = "the GPU" if short.gpu is None else f"GPU {short.gpu}"
    return Culprit(what=f"{held} {gpu}", host=first.line.host, rank=first.rank)


def _where(short: Shortage) -> str:
    return "" if short.gpu is None else f" on GPU {short.gpu}"


def _named(short: Shortage) -> str:
    named = ", ".join(f"pid {pid} {text.size(size)}" for pid, size in short.others[:4])
    return f" ({named})" if named else ""
