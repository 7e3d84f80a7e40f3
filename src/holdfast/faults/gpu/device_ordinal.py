"""A rank selected a GPU that it cannot see.

What you see   `CUDA error: invalid device ordinal` (101), `device >= 0 && device < num_gpus`,
               `AssertionError: Invalid device id`, Lightning's `You requested gpu: … But your
               machine only has: …`, on the ranks whose number is too high; the other ranks wait.
Why            More ranks were started on a machine than it has visible GPUs; or the script uses the
               global RANK as device number, which is right on the first node only; or
               CUDA_VISIBLE_DEVICES shows each process a single GPU, which is then device 0 in every
               process.
How to be sure `nvidia-smi -L | wc -l` and `echo $CUDA_VISIBLE_DEVICES` on that machine, inside the
               container; compare with --nproc-per-node, --gres or slots.
Fix            Start as many ranks as GPUs on each machine, and call
               `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`. Where every process is shown
               only one GPU, use device 0 in all of them.
               A list in CUDA_VISIBLE_DEVICES is read from left to right and ends at the first entry
               that names no GPU; a GPU named twice leaves none.
Known limits   `check` judges the number of ranks only where it is given (--nproc-per-node), and
               for NVIDIA's GPUs only; a job on CPUs, or with several Gloo ranks on one GPU, is fine
               with fewer. Lint follows device numbers within one file and knows the number of
               machines only from the launch command; `explain` knows CUDA_VISIBLE_DEVICES only
               where the log shows it.
Sources        https://docs.nvidia.com/cuda/cuda-c-programming-guide/#cuda-environment-variables
               https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html (101, 100)
               pytorch/pytorch c10/cuda/CUDAFunctions.cpp, torch/cuda/__init__.py
               https://docs.pytorch.org/docs/stable/elastic/run.html (LOCAL_RANK)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from holdfast import text
from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.machine import MachineFacts, known
from holdfast.analysis.machine.visible_gpus import (
    NO_GPU,
    VARIABLE,
    Visible,
    fastest_first,
    gpus_here,
    seen_by_job,
)
from holdfast.analysis.nodes import NodesFacts, differences, gpu_differences
from holdfast.analysis.source.launch import counts
from holdfast.analysis.source.processes import gpu_placement
from holdfast.analysis.source.processes.children import SPAWNERS
from holdfast.analysis.source.program import Program, constant
from holdfast.analysis.source.python.name_values import names
from holdfast.analysis.source.source import Source
from holdfast.fault import SHOWN, Fault
from holdfast.findings import Culprit, Diagnosis, Evidence, Finding

FAULT = Fault(
    code="HOLD306",
    slug="device-ordinal",
    related=("duplicate-gpu", "container-flags", "rank-assignment", "driver-mismatch"),
    gpus_only=True,
)

ORDINAL = FAULT.log_pattern(
    "ordinal",
    r"invalid device ordinal|cudaErrorInvalidDevice\b|CUDA_ERROR_INVALID_DEVICE\b"
    r"|device >= 0 && device < num_gpus(?:.*device=(?P<device>-?\d+), num_gpus=(?P<gpus>\d+))?"
    r"|NCCL WARN Invalid device \d+ \(totalnDev=(?P<total>\d+)\)"
    r"|AssertionError: Invalid device id|[Ii]nvalid CUDA '.{1,60}' requested"
    r"|Invalid number of GPUs: (?P<asked>\d+) requested but only (?P<found>\d+) were found",
    anchors=(
        "invalid device ordinal",
        "cudaErrorInvalidDevice",
        "CUDA_ERROR_INVALID_DEVICE",
        "device < num_gpus",
        "Invalid device id",
        "(totalnDev=",
        "nvalid CUDA '",
        "Invalid number of GPUs: ",
    ),
    example="RuntimeError: CUDA error: invalid device ordinal",
)
REQUESTED = FAULT.log_pattern(
    "requested",
    r"You requested gpu: \[?(?P<wanted>[\d, ]+)\]?|But your machine only has: \[?(?P<has>[\d, ]*)",
    anchors=("You requested gpu: ", "But your machine only has: "),
    example="MisconfigurationException: You requested gpu: [0, 1, 2, 3]",
)
STORED = FAULT.log_pattern(
    "stored",
    r"deserialize object on CUDA device (?P<device>\d+) but torch\.cuda\.device_count\(\) is "
    r"(?P<gpus>\d+)",
    anchors="deserialize object on CUDA device",
    example="RuntimeError: Attempting to deserialize object on CUDA device 3 but "
    "torch.cuda.device_count() is 1. Please use torch.load with map_location",
)
NONE_SEEN = FAULT.log_pattern(
    "none-seen",
    r"no CUDA-capable device is detected|No (?:CUDA|HIP) GPUs are available|no GPUs found"
    r"|No XPU devices are available|no ROCm-capable device is detected"
    r"|CUDA_ERROR_NO_DEVICE\b|cudaErrorNoDevice\b|^No devices were found\s*$",
    anchors=(
        "no CUDA-capable device",
        "GPUs are available",
        "No XPU devices are available",
        "no ROCm-capable device",
        "no GPUs found",
        "CUDA_ERROR_NO_DEVICE",
        "cudaErrorNoDevice",
        "No devices were found",
    ),
    example="RuntimeError: No CUDA GPUs are available",
)


SHOW_GPUS = "nvidia-smi -L; echo CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES"


# --- check ---------------------------------------------------------------------------------------


@FAULT.check(needs=("nvidia", "settings"))
def ranks_against_visible_gpus(facts: MachineFacts) -> Finding | Sequence[Finding]:
    if not gpus_here(facts):
        return FAULT.does_not_apply(NO_GPU)
    seen = seen_by_job(facts)
    if seen.devices is None:
        return FAULT.skipped("the MIG instances of a GPU could not be listed")
    if seen.hidden_on_purpose:
        return FAULT.ok(f"{VARIABLE}={seen.value} hides all GPUs: a job on CPUs")
    found = [*_misread(facts, seen), *_too_few(facts, seen), *_counted_otherwise(facts, seen)]
    return found or FAULT.ok(
        f"{text.counted(len(seen.devices), 'GPU')} visible"
        + (f" for {text.counted(facts.plan.nproc, 'rank')}" if facts.plan.nproc_named else "")
    )


def _misread(facts: MachineFacts, seen: Visible) -> Iterator[Finding]:
    setting = facts.setting(VARIABLE)
    if setting is None or seen.devices is None or not (seen.bad or seen.odd):
        return
    total = len(known(facts.nvidia).gpus)
    if seen.bad:
        speak = FAULT.warning if seen.devices else FAULT.error
        yield speak(
            f"{VARIABLE} shows {f'only {len(seen.devices)}' if seen.devices else 'no'} GPU"
            f"{'s' * (len(seen.devices) > 1)}: its entry {seen.bad} {seen.why_bad}",
            reason="a GPU that is named twice leaves none at all"
            if not seen.devices and seen.why_bad == "is named twice"
            else "CUDA reads the list from left to right and stops there, without a message",
            evidence=[setting.evidence],
            fix=f"`export {VARIABLE}={_every_number(total)}`, or fewer of them, without quotes; or "
            "UUIDs of `nvidia-smi -L`",
        )
    else:
        yield FAULT.warning(
            f"CUDA reads only the number at the start of {seen.odd[0]!r} in {VARIABLE}",
            reason=f"so that {text.counted(len(seen.devices), 'GPU')} "
            f"{text.plural(seen.devices, 'is', 'are')} visible",
            evidence=[setting.evidence],
            fix="write numbers with commas between them",
        )


def _too_few(facts: MachineFacts, seen: Visible) -> Iterator[Finding]:
    """One GPU shown to several ranks is duplicate-gpu's."""
    ranks, devices = facts.plan.nproc, seen.devices or ()
    narrowed = seen.value is not None and len(devices) == 1
    if not facts.plan.nproc_named or ranks <= len(devices) or not devices or narrowed:
        return
    total = len(known(facts.nvidia).gpus)
    setting = facts.setting(VARIABLE)
    yield FAULT.warning(
        f"{ranks} ranks are to start here, but {text.counted(len(devices), 'GPU')} "
        f"{text.plural(devices, 'is', 'are')} visible",
        reason=f"rank n selects device n: {text.ranks(range(len(devices), ranks))} would fail with "
        "'invalid device ordinal', or share a GPU, which NCCL refuses; a job on CPUs is not "
        "affected",
        evidence=[
            Evidence(quote=f"{len(devices)} of {total} GPUs visible", source="NVML"),
            *([setting.evidence] if setting is not None else []),
        ],
        fix=f"`export {VARIABLE}={_every_number(ranks)}`"
        if total >= ranks and setting is not None
        else f"start `torchrun --nproc-per-node {len(devices)} …`",
    )


def _every_number(count: int) -> str:
    return ",".join(map(str, range(count)))


def _counted_otherwise(facts: MachineFacts, seen: Visible) -> Iterator[Finding]:
    setting = facts.setting(VARIABLE)
    if setting is None or seen.bad or setting.value.startswith(("GPU-", "MIG-")):
        return
    if len(seen.devices or ()) < len(known(facts.nvidia).gpus) and fastest_first(facts):
        names = text.names({gpu.name for gpu in known(facts.nvidia).gpus if gpu.name})
        yield FAULT.note(
            f"numbers in {VARIABLE} may mean other GPUs than in nvidia-smi",
            reason=f"this machine has {names}: CUDA counts the fastest first, nvidia-smi by place",
            evidence=[setting.evidence],
            fix="`export CUDA_DEVICE_ORDER=PCI_BUS_ID`, or name them by UUID: `nvidia-smi -L`",
        )


# --- between nodes -------------------------------------------------------------------------------


@FAULT.check_nodes
def nodes_have_different_numbers_of_gpus(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    has, gaps = differences.of_each(facts, gpu_differences.usable_gpus)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if len(has) < 2:
        return unknown
    unequal = differences.compare({node: str(count) for node, count in has.items()})
    if unequal is None:
        return [FAULT.ok(f"each node has {next(iter(has.values()))} GPU devices"), *unknown]
    fewest = min(has.values())
    short = sorted(node for node, count in has.items() if count == fewest)
    odd = unequal.odd or short
    most = facts.plan.nproc if facts.plan.nproc_named else max(has.values())
    speak = FAULT.error if most > fewest else FAULT.note
    told = speak(
        f"the number of GPUs differs between nodes: {unequal.listed}",
        reason=f"{most} ranks on each node need {most} GPUs: those beyond select a device that is "
        f"not there ({text.names(short)})"
        if most > fewest
        else f"{most} ranks on each node fit all of them; `--nproc-per-node gpu` would start "
        "unequal numbers",
        evidence=[
            Evidence(quote=f"{node}: {has[node]} GPU devices", source="NVML or /dev", host=node)
            for node in sorted(has, key=lambda node: (node not in odd, node))[:SHOWN]
        ],
        fix=f"see what is missing: `nvidia-smi -L` on {text.names(short)}; or "
        + (
            f"start `torchrun --nproc-per-node {fewest} …` on every node"
            if fewest
            else f"leave {text.names(short)} out of the job"
        ),
        host=odd[0] if len(odd) == 1 and len(has) > 2 else "",
    )
    return [told, *unknown]


# --- explain -------------------------------------------------------------------------------------


@FAULT.explain
def selected_gpu_not_visible(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(ORDINAL, REQUESTED)
    if not seen:
        return _saved_on_another_gpu(wreckage) or _no_gpu_visible(wreckage)
    # Ultralytics prints this for any device it cannot use, also where torch has no CUDA at all.
    vague = len(sightings.saying(seen, "nvalid CUDA '")) == len(seen)
    return FAULT.diagnosis(
        f"{sightings.who(seen)} selected a GPU number that it cannot see{_counts(seen)}"
        f"{_visible_devices(wreckage)}: more ranks than visible GPUs, or the global rank as device",
        confidence=0.7 if vague else 0.93,
        seen=seen,
        fix="start as many ranks on each machine as it has visible GPUs, and select the device by "
        "LOCAL_RANK: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`",
        next=SHOW_GPUS,
    )


def _no_gpu_visible(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(NONE_SEEN)
    if not seen:
        return None
    return FAULT.diagnosis(
        f"{sightings.who(seen)} saw no GPU{_visible_devices(wreckage)}",
        confidence=0.6,
        seen=seen,
        fix="make the GPUs visible: `--gpus all` for a container, --gres for Slurm, and a "
        "non-empty CUDA_VISIBLE_DEVICES",
        next=SHOW_GPUS,
    )


def _visible_devices(wreckage: Wreckage) -> str:
    value = wreckage.settings.get("CUDA_VISIBLE_DEVICES")
    return "" if value is None else f" (CUDA_VISIBLE_DEVICES={value})"


def _saved_on_another_gpu(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(STORED)
    if not seen:
        return None
    line = seen[0].line
    return FAULT.diagnosis(
        f"{sightings.who(seen)} loaded a file whose tensors were saved on GPU "
        f"{sightings.field(seen, 'device')}, but saw only {sightings.field(seen, 'gpus')}: "
        "torch.load restores each tensor to the device it was saved on unless map_location is "
        "given",
        confidence=0.9,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what="torch.load"),
        fix="load with `torch.load(path, map_location='cpu')` and move the model afterwards; that "
        "also keeps the ranks from all loading onto the same GPU",
        next="grep -rn 'torch.load(' --include=*.py . | grep -v map_location",
    )


def _counts(seen: Sequence[Sighting]) -> str:
    device, gpus = (sightings.field(seen, name) for name in ("device", "gpus"))
    asked, found = (sightings.field(seen, name) for name in ("asked", "found"))
    wanted, has = (sightings.field(seen, name).strip(" ,") for name in ("wanted", "has"))
    if device:
        return f" (device {device}; {gpus} visible)"
    if asked:
        return f" ({asked} requested, {found} found)"
    return f" (requested {wanted}; found {has or 'none'})" if wanted else ""


# --- lint ----------------------------------------------------------------------------------------


ON_GPU = re.compile(r"cuda|nccl")
GLOBAL = re.compile(r"get_rank|RANK|PROCID")


@FAULT.lint_python
def global_rank_used_as_device(program: Program, source: Source) -> Iterator[Finding]:
    if "device_count" in program.text:
        return
    if not (ON_GPU.search(program.text) and GLOBAL.search(program.text)):
        return
    several = any((launch.machines or 1) > 1 for launch in source.started_by)
    report = FAULT.error if several else FAULT.note
    chosen = [
        c for c in gpu_placement.choices(program) if gpu_placement.global_rank(program, c.number)
    ]
    # Once is enough where it may never matter.
    for choice in chosen if several else chosen[:1]:
        number = ast.unparse(choice.number) if choice.number else ""
        yield report(
            f"{choice.call.written or 'this call'} uses `{number}`, the global rank, as GPU number",
            reason="devices are numbered from 0 on each machine, ranks across all of them: "
            + (
                "this job runs on several machines, and that number is valid on the first only "
                "(invalid device ordinal)"
                if several
                else "on a second machine that number is invalid (invalid device ordinal)"
            ),
            fix="use `int(os.environ['LOCAL_RANK'])`, which torchrun sets, or "
            f"`{number} % torch.cuda.device_count()`",
            at=program.place(choice.call.node),
        )


@FAULT.lint_python
def more_ranks_than_visible_gpus(program: Program, source: Source) -> Iterator[Finding]:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"` and mp.spawn(…, nprocs=4)."""
    visible_setting = source.setting("CUDA_VISIBLE_DEVICES")
    gpus = counts.visible(visible_setting)
    if visible_setting is None or gpus is None or not set(gpu_placement.choices(program)):
        return
    for call in program.called(*SPAWNERS):
        given = call.argument(2, "nprocs")
        number = constant(names(program).follow(given)) if given is not None else None
        if isinstance(number, int) and number > gpus:
            yield FAULT.error(
                f"{call.written} starts {number} ranks, but "
                f"CUDA_VISIBLE_DEVICES={visible_setting.value} (line {visible_setting.place.line}) "
                f"shows {gpus} GPU{'s' if gpus > 1 else ''}",
                reason="rank n uses device n: the last ranks fail with 'invalid device ordinal'",
                fix="use `nprocs=torch.cuda.device_count()`, or list more devices",
                at=program.place(given or call.node),
            )
