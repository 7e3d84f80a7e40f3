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
Known limits   Lint follows device numbers within one file and knows the number of machines only
               from the launch command; `explain` knows CUDA_VISIBLE_DEVICES only where the log
               shows it.
Sources        https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html (101, 100)
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
from holdfast.analysis.nodes import NodesFacts, differences
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
)

ORDINAL = FAULT.log_pattern(
    "ordinal",
    r"invalid device ordinal|cudaErrorInvalidDevice\b|CUDA_ERROR_INVALID_DEVICE\b"
    r"|device >= 0 && device < num_gpus(?:.*device=(?P<device>-?\d+), num_gpus=(?P<gpus>\d+))?"
    r"|AssertionError: Invalid device id|[Ii]nvalid CUDA '.{1,60}' requested"
    r"|Invalid number of GPUs: (?P<asked>\d+) requested but only (?P<found>\d+) were found",
    anchors=(
        "invalid device ordinal",
        "cudaErrorInvalidDevice",
        "CUDA_ERROR_INVALID_DEVICE",
        "device < num_gpus",
        "Invalid device id",
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


@FAULT.check_nodes
def nodes_have_different_numbers_of_gpus(facts: NodesFacts) -> Finding | Sequence[Finding]:
    if len(facts.nodes) < 2:
        return FAULT.does_not_apply("one node: there is nothing to compare")
    devices, gaps = differences.of_each(facts, lambda node: node.facts.accelerators)
    unknown = [FAULT.skipped(gap.why, host=gap.node) for gap in gaps]
    if len(devices) < 2:
        return unknown
    has = {node: len(found) for node, found in devices.items()}
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
            Evidence(quote=f"{node}: {has[node]} GPU devices", source="/dev", host=node)
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
