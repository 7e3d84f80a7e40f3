"""The launcher was asked for something that does not add up.

What you see   The launcher, or the framework's first check, refuses: `not enough slots`, `No slot
               '4' specified on host`, `world size (8) is not divisible by`, `unrecognized
               arguments: --local-rank=0`. Or nothing refuses, and a job meant for four GPUs trains
               on one (`world_size=1`), or waits for tasks that nobody started.
Why            The number of processes is said in several places: the scheduler's request, the
               launcher's flag, the host file, the framework's own setting, and the product of the
               parallel sizes in the model's configuration. Each program checks its own share.
               torch.distributed.launch hands every process `--local-rank` (before torch 2.0 spelt
               `--local_rank`), which the script must accept; torchrun hands it none.
How to be sure Write the numbers side by side: nodes times processes per node, slots in the host
               file, tasks in the scheduler, visible GPUs per node.
Fix            One source for the number: let the launcher take it from the scheduler (`srun` with
               --ntasks-per-node equal to the framework's devices, `torchrun --nproc-per-node=gpu`),
               and let the script read LOCAL_RANK and WORLD_SIZE from the environment.
Sources        torch 2.13.0: torch/distributed/run.py, torch/distributed/launch.py
               deepspeedai/DeepSpeed deepspeed/launcher/runner.py, deepspeed/runtime/config.py
               Lightning-AI/pytorch-lightning lightning/fabric/plugins/environments/slurm.py
               huggingface/accelerate src/accelerate/commands/launch.py
               NVIDIA/Megatron-LM megatron/training/arguments.py
               https://docs.open-mpi.org/en/main/launching-apps/scheduling.html
"""

from __future__ import annotations

import functools
from collections.abc import Iterator

from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import start_checks, start_errors
from holdfast.analysis.logs.patterns.launch_errors import COMPLAINTS
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.source.launch import counts
from holdfast.analysis.source.source import HostSlots, Source, SourceKind
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(code="HOLD901", slug="launcher-config")
FAULT.log_patterns.extend((*start_errors.ALL, *start_checks.ALL))


@functools.cache
def _words() -> tuple[str, ...]:
    """Every field of the complaints; asked for late, since it compiles all their patterns."""
    return tuple(name for one in COMPLAINTS for name in one.wording.regex.groupindex)


@FAULT.explain
def the_numbers_were_refused(wreckage: Wreckage) -> Diagnosis | None:
    heard = [(one, seen) for one in COMPLAINTS if (seen := wreckage.seen(one.wording))]
    if not heard:
        return None
    complaint, seen = min(heard, key=lambda pair: (-pair[0].sure, pair[1][0].order))
    return FAULT.diagnosis(
        _filled(complaint.means, seen[0]),
        confidence=complaint.sure,
        seen=seen,
        culprit=Culprit(what=_filled(complaint.culprit, seen[0])),
        fix=complaint.fix,
        next=complaint.next,
    )


def _filled(text: str, seen: Sighting) -> str:
    """What the line did not tell is left out, with the brackets around it."""
    for name in _words():
        text = text.replace(f"{{{name}}}", seen.fields.get(name, "").strip())
    return " ".join(text.replace(" ()", "").split())


# --- a job for several GPUs that came up as one process ------------------------------------------

ALONE = FAULT.log_pattern(
    "one-rank",
    r"\bworld_size(?:\(\))?\s?[=:]\s?1\b|\bMEMBER: 1/1\b|num_processes\s?[=:]\s?1\b",
    anchors=("world_size=1", "world_size: 1", "world_size()=1", "MEMBER: 1/1", "num_processes"),
    example="Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1",
    role=Role.CONTEXT,
)
SEVERAL_GPUS = FAULT.log_pattern(
    "several-gpus",
    r"(?:devices?=|CUDA_VISIBLE_DEVICES: )\[(?P<gpus>\d+, ?\d[\d, ]*)\]",
    anchors=("device=[", "devices=[", "CUDA_VISIBLE_DEVICES: ["),
    example="LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1,2]",
    role=Role.CONTEXT,
)
ONE_PER_GPU = FAULT.log_pattern(
    "strategy",
    r"\b(?:DDP|FSDP|DeepSpeed|ModelParallel)\w*Strategy\b|distributed_backend=nccl",
    anchors=("Strategy", "distributed_backend="),
    example="strategy=<lightning.pytorch.strategies.ddp.DDPStrategy object at 0x7f00>",
    role=Role.CONTEXT,
)
WITHOUT_SRUN = FAULT.log_pattern(
    "srun-unused",
    r"`srun` command is available on your system but is not used",
    anchors="`srun` command is available",
    example="The `srun` command is available on your system but is not used. HINT: If your "
    "intention is to run Lightning on SLURM, prepend your python command with `srun`",
    role=Role.ADVICE,
)


@FAULT.explain
def one_rank_came_for_many_gpus(wreckage: Wreckage) -> Diagnosis | None:
    """One process per GPU was asked for, and the only one there thinks it is all."""
    alone, gpus = wreckage.seen(ALONE), wreckage.seen(SEVERAL_GPUS)
    strategy = wreckage.seen(ONE_PER_GPU)
    member = any("MEMBER" in one.line.text for one in alone)
    if not alone or not gpus or not (strategy or member) or (wreckage.world_size or 1) > 1:
        return None
    count = len(gpus[0].fields["gpus"].split(","))
    srun = wreckage.seen(WITHOUT_SRUN)
    return FAULT.diagnosis(
        f"{count} GPUs and one process for each were asked for, but the job came up with a world "
        "size of 1: the scheduler or launcher started a single task",
        confidence=0.75 if srun else 0.65,
        seen=(*alone[:2], *gpus[:1], *strategy[:1], *srun[:1]),
        culprit=Culprit(what="number of tasks (1)"),
        fix=f"ask Slurm for `--ntasks-per-node={count}` and start with srun, or start with "
        f"`torchrun --nproc-per-node={count}`; an inherited SLURM_NTASKS=1 of an interactive "
        "shell has the same effect",
        next="env | grep -E 'SLURM_N?TASKS|SLURM_NNODES|WORLD_SIZE'",
        unknown=("how the script was started: the log does not show the command",),
    )


# --- in what a user wrote ------------------------------------------------------------------------


@FAULT.lint
def the_numbers_do_not_add_up(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        for doubt in counts.problems(source, launch):
            speak = {"error": FAULT.error, "warning": FAULT.warning}.get(doubt.status, FAULT.note)
            yield speak(doubt.summary, reason=doubt.reason, fix=doubt.fix, at=doubt.place)


@FAULT.lint
def a_host_stands_there_twice(source: Source) -> Iterator[Finding]:
    """Only with slots: where a line is one slot, a name stands there once for each."""
    seen: dict[str, HostSlots] = {}
    for host in source.hosts if source.kind is SourceKind.HOSTFILE else ():
        first = seen.setdefault(host.name, host)
        if first is not host and first.slots and host.slots:
            yield FAULT.warning(
                f"{host.name} stands here twice, first in line {first.place.line}",
                reason="DeepSpeed refuses such a file ('multiple entries'); Open MPI adds the "
                f"slots up, {first.slots + host.slots} in all",
                fix=f"one line for each host: `{host.name} slots={host.slots}`",
                at=host.place,
            )
