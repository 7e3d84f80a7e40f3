"""Other processes hold the GPU's memory.

What you see   `CUDA out of memory. Tried to allocate 20.00 MiB` from a process that itself holds
               almost nothing, or `CUDA error: out of memory` at the first use of the GPU; `all
               CUDA-capable devices are busy or unavailable`; vLLM's `Free memory on device … on
               startup is less than desired GPU memory utilization`.
Why            All processes on a GPU share its memory, first come, first served: another user's
               job, a notebook that was never closed, a leftover process of your own last run, or
               ranks of this job that all selected GPU 0. In exclusive compute mode a single other
               process is enough.
How to be sure `holdfast check` names the processes on each GPU with user and command. The
               allocator's message adds up: total minus free minus what this process holds is what
               other processes hold; torch from 2.1 names their pids. `nvidia-smi` lists them
               (inside a container only its own).
Fix            Select a free GPU with CUDA_VISIBLE_DEVICES, or ask the owner of the other process.
               End leftover processes of your own run by pid. Bind each rank to the GPU of its
               LOCAL_RANK before anything uses CUDA.
Known limits   Less than a tenth of a GPU is not reported: desktops and services take that much.
               From inside a container processes of others have a number but no name. On GH200 and
               GB200 the host may use the GPU's memory, so only what processes hold counts there.
               Messages without numbers (`CUDA error: out of memory`) leave open which process holds
               the memory.
Sources        pytorch/pytorch c10/cuda/CUDACachingAllocator.cpp: what the message counts
               https://docs.pytorch.org/docs/stable/notes/cuda.html#memory-management
               https://docs.nvidia.com/cuda/cuda-c-programming-guide/#compute-modes
               https://docs.nvidia.com/datacenter/tesla/mig-user-guide/
               https://docs.nvidia.com/deploy/nvml-api/ (processes and memory of a GPU)
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from holdfast import text
from holdfast.analysis.logs import gpu_memory, sightings
from holdfast.analysis.logs.gpu_memory import Shortage
from holdfast.analysis.logs.patterns.gpu_memory import (
    ALLOCATOR,
    AT_FIRST_USE,
    CUDA_CALL,
    NUMBERS,
)
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import Gpu, MachineFacts, Unread, known
from holdfast.analysis.machine.gpu_memory_held import HeldGpu, describe, free_gpus, held
from holdfast.analysis.machine.visible_gpus import NO_GPU, gpus_here, seen_by_job, used_by_ranks
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD307",
    slug="gpu-occupied",
    related=("gpu-oom", "duplicate-gpu", "orphaned-workers", "stale-process"),
    gpus_only=True,
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
FAULT.log_patterns.append(AT_FIRST_USE)
LISTING = "nvidia-smi --query-compute-apps=gpu_bus_id,pid,process_name,used_memory --format=csv"


MUCH, SOME = 0.25, 0.1
"""shares of a GPU's memory: few models leave a quarter; a desktop takes less than a tenth"""
EXCLUSIVE = ("exclusive process", "exclusive thread")


# --- check ---------------------------------------------------------------------------------------


@FAULT.check(needs=("nvidia", "settings", "leftovers"))
def processes_on_the_gpus_of_this_job(facts: MachineFacts) -> Finding | Sequence[Finding]:
    here = gpus_here(facts)
    if not here:
        return FAULT.does_not_apply(NO_GPU)
    used = used_by_ranks(facts)
    gpus = [g for g in here if not g.unread and (used is None or g.index in used)]
    found = [*_closed(gpus), *_cut_up(facts), *_leftovers(facts, gpus), *_held(facts, gpus)]
    if found:
        return found
    if not gpus:
        return FAULT.does_not_apply("this job sees no GPU")
    free = sum((gpu.memory_total or 0) - held(gpu).taken for gpu in gpus)
    return FAULT.ok(f"{text.counted(len(gpus), 'GPU')} free for this job: {text.size(free)}")


def _closed(gpus: Sequence[Gpu]) -> Iterator[Finding]:
    """Compute modes that let nothing in, or no second process."""
    prohibited = [gpu for gpu in gpus if gpu.compute_mode == "prohibited"]
    taken = [g for g in gpus if g.compute_mode in EXCLUSIVE and _closed_by_holder(g)]
    for closed, reason in (
        (prohibited, "no program may use it: `all CUDA-capable devices are busy or unavailable`"),
        (taken, "only one process may use it, and one does: the next is refused"),
    ):
        if closed:
            numbers = ",".join(str(gpu.index) for gpu in closed)
            yield FAULT.error(
                f"GPU {text.numbers(gpu.index for gpu in closed)} is in compute mode "
                f"'{closed[0].compute_mode}'",
                reason=reason,
                evidence=[Evidence(quote=held(g).description, source="NVML") for g in closed],
                fix=f"`sudo nvidia-smi -c DEFAULT -i {numbers}`"
                if closed is prohibited
                else f"have the owner end it, or `sudo nvidia-smi -c DEFAULT -i {numbers}`",
            )


def _closed_by_holder(gpu: Gpu) -> bool:
    """MPS's server is the one process that lets others in: its guide asks for this mode."""
    holders = held(gpu).holders
    return bool(holders) and not any("nvidia-cuda-mps" in holder.command for holder in holders)


def _cut_up(facts: MachineFacts) -> Iterator[Finding]:
    """GPUs in MIG mode without an instance: CUDA shows nothing of them."""
    bare = [gpu for gpu in known(facts.nvidia).gpus if gpu.mig and gpu.mig_devices == ()]
    if not bare or seen_by_job(facts).hidden_on_purpose:
        return
    nothing_else = not seen_by_job(facts).devices
    numbers = ",".join(str(gpu.index) for gpu in bare)
    yield (FAULT.error if nothing_else else FAULT.note)(
        f"GPU {text.numbers(gpu.index for gpu in bare)} is in MIG mode and has no instance",
        reason="CUDA shows only instances of such a GPU, so programs do not see it",
        evidence=[
            Evidence(quote=f"GPU {g.index}: MIG on, 0 instances", source="NVML") for g in bare
        ],
        fix=f"use it whole: `sudo nvidia-smi -mig 0 -i {numbers}`; or make instances: `sudo "
        f"nvidia-smi mig -cgi 0 -C -i {numbers}`",
    )


def _leftovers(facts: MachineFacts, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    orphans = () if isinstance(facts.leftovers, Unread) else facts.leftovers.orphans
    own = {orphan.process.pid: orphan for orphan in orphans}
    holding = [(g, h) for g in gpus for h in held(g).holders if h.pid in own]
    if not holding:
        return
    pids = sorted({holder.pid for _, holder in holding})
    yield FAULT.warning(
        f"pid {text.numbers(pids)} of an earlier run still {text.plural(pids, 'holds', 'hold')} "
        f"memory of GPU {text.numbers(gpu.index for gpu, _ in holding)}",
        reason="the launcher has exited, so nothing will end what it started",
        evidence=[
            Evidence(
                quote=f"GPU {gpu.index}: {describe(holder)}; {own[holder.pid].sign}", source="NVML"
            )
            for gpu, holder in holding[:SHOWN]
        ],
        fix=f"`kill {' '.join(map(str, pids))}`",
    )


def _held(facts: MachineFacts, gpus: Sequence[Gpu]) -> Iterator[Finding]:
    # Of a GPU that is cut up, the instances of others are not this job's.
    taken = [one for gpu in gpus if not gpu.mig and (one := held(gpu)).share >= SOME]
    if not taken:
        return
    taken.sort(key=lambda one: -one.share)
    much = taken[0].share >= MUCH
    total = sum(one.gpu.memory_total or 0 for one in taken)
    yield (FAULT.warning if much else FAULT.note)(
        f"other processes hold {text.size(sum(one.taken for one in taken))} of {text.size(total)} "
        f"on GPU {text.numbers(one.gpu.index for one in taken)}",
        reason="the job gets only the rest of that memory, and shares the GPU's time while they "
        "compute",
        evidence=[Evidence(quote=one.description, source="NVML") for one in taken[:SHOWN]],
        fix=_instead(facts, taken),
    )


def _instead(facts: MachineFacts, taken: Sequence[HeldGpu]) -> str:
    visible = seen_by_job(facts).indices
    free = [
        gpu
        for gpu in free_gpus(known(facts.nvidia).gpus, SOME)
        if visible is None or gpu.index in visible
    ]
    enough = len(free) >= (facts.plan.nproc if facts.plan.nproc_named else 1)
    if enough:
        chosen = ",".join(str(gpu.index) for gpu in free)
        order = "CUDA_DEVICE_ORDER=PCI_BUS_ID " if len({gpu.name for gpu in free}) > 1 else ""
        return f"use the free ones: `export {order}CUDA_VISIBLE_DEVICES={chosen}`"
    users = {holder.user for one in taken for holder in one.holders if holder.user}
    owner = text.names(users) if users else "the owner"
    return f"wait, or have {owner} end these processes: `{LISTING}`"


# --- explain -------------------------------------------------------------------------------------


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
    for seen, confidence, what in (
        (wreckage.seen(RESERVATION), 0.8, "the GPU was already in use when the job started"),
        (
            wreckage.seen(BUSY),
            0.7,
            "the GPU was not available: it is in exclusive mode, or broken",
        ),
        (
            gpu_memory.full_at_first_use(wreckage),
            0.75,
            "the GPU had no memory for this process's context, before the process held any",
        ),
        (
            wreckage.seen(CUDA_CALL),
            0.5,
            "the GPU may have been full before this process used it",
        ),
    ):
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
