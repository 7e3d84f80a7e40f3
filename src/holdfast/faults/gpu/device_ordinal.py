"""A rank asks for a GPU that it cannot see.

What you see   `CUDA error: invalid device ordinal` (101), `device >= 0 && device < num_gpus`,
               `AssertionError: Invalid device id`, Lightning's `You requested gpu: … But your
               machine only has: …`, on the ranks whose number is too high; the others wait.
Why            More ranks were started on a machine than it has visible GPUs; or the script uses
               the global RANK as device number, which is right on the first node only; or
               CUDA_VISIBLE_DEVICES shows each process a single GPU, which is then number 0 for
               everybody.
How to be sure `nvidia-smi -L | wc -l` and `echo $CUDA_VISIBLE_DEVICES` on that machine, inside the
               container; compare with --nproc-per-node, --gres or slots.
Fix            As many ranks as GPUs on each machine, and
               `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`. Where every process is shown
               one GPU only, use device 0 in all of them.
Sources        https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html (101, 100)
               pytorch/pytorch c10/cuda/CUDAFunctions.cpp, torch/cuda/__init__.py
               https://docs.pytorch.org/docs/stable/elastic/run.html (LOCAL_RANK)
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence

from holdfast.analysis.logs import sightings
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.source.launch import counts
from holdfast.analysis.source.processes import gpu_placement
from holdfast.analysis.source.processes.children import SPAWNERS
from holdfast.analysis.source.program import Program, constant
from holdfast.analysis.source.python.names import names
from holdfast.analysis.source.source import Source
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(code="HOLD306", slug="device-ordinal")

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


@FAULT.explain
def it_chose_a_gpu_that_is_not_there(wreckage: Wreckage) -> Diagnosis | None:
    seen = wreckage.seen(ORDINAL, REQUESTED)
    if not seen and wreckage.seen(STORED):
        return _its_file_names_another_gpu(wreckage.seen(STORED))
    absent = not seen
    # Ultralytics says so of any wish it cannot fulfil, also where torch has no CUDA at all.
    vague = len(sightings.saying(seen, "nvalid CUDA '")) == len(seen)
    seen = seen or wreckage.seen(NONE_SEEN)
    if not seen:
        return None
    visible = wreckage.settings.get("CUDA_VISIBLE_DEVICES")
    shown = "" if visible is None else f" (CUDA_VISIBLE_DEVICES={visible})"
    line = seen[0].line
    return FAULT.diagnosis(
        f"{sightings.who(seen)} sees no GPU at all{shown}"
        if absent
        else f"{sightings.who(seen)} asked for a GPU number that does not exist for it"
        f"{_counts(seen)}{shown}: more ranks than visible GPUs, or the global rank used as device",
        confidence=0.6 if absent else 0.7 if vague else 0.93,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid),
        fix="make the GPUs visible: `--gpus all` for a container, --gres for Slurm, and a "
        "CUDA_VISIBLE_DEVICES that is not empty"
        if absent
        else "start as many ranks on each machine as it shows GPUs, and choose the device by "
        "LOCAL_RANK: `torch.cuda.set_device(int(os.environ['LOCAL_RANK']))`",
        next="nvidia-smi -L; echo CUDA_VISIBLE_DEVICES=$CUDA_VISIBLE_DEVICES",
    )


def _its_file_names_another_gpu(seen: Sequence[Sighting]) -> Diagnosis:
    line = seen[0].line
    return FAULT.diagnosis(
        f"{sightings.who(seen)} loads a file whose tensors were saved on GPU "
        f"{sightings.field(seen, 'device')}, and it sees only {sightings.field(seen, 'gpus')}: "
        "torch.load puts each one back where it was, unless told otherwise",
        confidence=0.9,
        seen=seen,
        culprit=Culprit(rank=line.rank, host=line.host, pid=line.pid, what="torch.load"),
        fix="`torch.load(path, map_location='cpu')`, and move the model afterwards: that also "
        "keeps all ranks from loading onto the same GPU",
        next="grep -rn 'torch.load(' --include=*.py . | grep -v map_location",
    )


def _counts(seen: Sequence[Sighting]) -> str:
    device, gpus = (sightings.field(seen, name) for name in ("device", "gpus"))
    asked, found = (sightings.field(seen, name) for name in ("asked", "found"))
    wanted, has = (sightings.field(seen, name).strip(" ,") for name in ("wanted", "has"))
    if device:
        return f" ({device}, and there are {gpus})"
    if asked:
        return f" ({asked} were asked for, {found} are there)"
    return f" (asked for {wanted}; there is {has or 'none'})" if wanted else ""


# --- in what a user wrote ------------------------------------------------------------------------


ON_GPU = re.compile(r"cuda|nccl")
GLOBAL = re.compile(r"get_rank|RANK|PROCID")


@FAULT.lint_python
def it_counts_devices_by_the_global_rank(program: Program, source: Source) -> Iterator[Finding]:
    if "device_count" in program.text:
        return
    if not (ON_GPU.search(program.text) and GLOBAL.search(program.text)):
        return
    several = any((launch.machines or 1) > 1 for launch in source.started_by)
    tell = FAULT.error if several else FAULT.note
    chosen = [
        c for c in gpu_placement.choices(program) if gpu_placement.global_rank(program, c.number)
    ]
    # Said once it is enough where it may never matter.
    for choice in chosen if several else chosen[:1]:
        number = ast.unparse(choice.number) if choice.number else ""
        yield tell(
            f"{choice.call.written or 'this call'} takes `{number}`, the rank in the whole job, as "
            "the number of a GPU",
            reason="devices are counted on each machine from 0, ranks through all of them: "
            + (
                "this job runs on several machines, and on all but the first that number does "
                "not exist (invalid device ordinal)"
                if several
                else "on a second machine that number does not exist (invalid device ordinal)"
            ),
            fix="`int(os.environ['LOCAL_RANK'])`, which torchrun sets, or "
            f"`{number} % torch.cuda.device_count()`",
            at=program.place(choice.call.node),
        )


@FAULT.lint_python
def it_starts_more_than_it_shows(program: Program, source: Source) -> Iterator[Finding]:
    """`os.environ["CUDA_VISIBLE_DEVICES"] = "0,1"` and mp.spawn(…, nprocs=4)."""
    shown = source.setting("CUDA_VISIBLE_DEVICES")
    gpus = counts.visible(shown)
    if shown is None or gpus is None or not set(gpu_placement.choices(program)):
        return
    for call in program.called(*SPAWNERS):
        given = call.argument(2, "nprocs")
        number = constant(names(program).follow(given)) if given is not None else None
        if isinstance(number, int) and number > gpus:
            yield FAULT.error(
                f"{call.written} starts {number} ranks, and CUDA_VISIBLE_DEVICES={shown.value} "
                f"(line {shown.place.line}) shows {gpus} GPU{'s' if gpus > 1 else ''}",
                reason="rank number n takes device n: the last ones get 'invalid device ordinal'",
                fix="`nprocs=torch.cuda.device_count()`, or name more devices",
                at=program.place(given or call.node),
            )
