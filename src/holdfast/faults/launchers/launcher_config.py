"""The launcher's options contradict each other or the allocation.

What you see   The launcher, or the framework's first check, refuses: `not enough slots`, `No slot
               '4' specified on host`, `world size (8) is not divisible by`, `unrecognized
               arguments: --local-rank=0`. Or nothing refuses, and a job meant for four GPUs trains
               on one (`world_size=1`), or waits for tasks that were never started.
Why            The number of processes is stated in several places: the scheduler's request, the
               launcher's option, the host file, the framework's own setting, and the product of the
               parallel sizes in the model's configuration. Each program checks its own part.
               torch.distributed.launch passes every process `--local-rank` (before torch 2.0
               spelled `--local_rank`), which the script must accept; torchrun passes none.
How to be sure Compare the numbers: nodes times processes per node, slots in the host file, tasks in
               the scheduler, visible GPUs per node.
Fix            State the number once: let the launcher take it from the scheduler (`srun` with
               --ntasks-per-node equal to the framework's devices, `torchrun --nproc-per-node=gpu`),
               and let the script read LOCAL_RANK and WORLD_SIZE from the environment.
Known limits   Lint compares numbers it can read in one file; values from variables, scheduler
               defaults or configuration files stay unknown. `explain` knows the error messages of
               common launchers and frameworks only.
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

from holdfast import shell_words
from holdfast.analysis.logs.pattern import Role
from holdfast.analysis.logs.patterns import start_checks, start_errors
from holdfast.analysis.logs.patterns.launch_errors import COMPLAINTS
from holdfast.analysis.logs.wreckage import Sighting, Wreckage
from holdfast.analysis.source.launch import counts
from holdfast.analysis.source.source import HostSlots, Source, SourceKind
from holdfast.fault import Fault
from holdfast.findings import Culprit, Diagnosis, Finding

FAULT = Fault(
    code="HOLD901",
    slug="launcher-config",
    related=("device-ordinal", "ranks-missing", "rank-assignment", "horovod-discovery"),
)
FAULT.log_patterns.extend((*start_errors.ALL, *start_checks.ALL))


@functools.cache
def _field_names() -> tuple[str, ...]:
    """Every field of the complaints; computed late, since it compiles all their patterns."""
    return tuple(name for one in COMPLAINTS for name in one.pattern.regex.groupindex)


@FAULT.explain
def launcher_refused_counts(wreckage: Wreckage) -> Diagnosis | None:
    matched = [(one, seen) for one in COMPLAINTS if (seen := wreckage.seen(one.pattern))]
    if not matched:
        return None
    complaint, seen = min(matched, key=lambda pair: (-pair[0].sure, pair[1][0].order))
    return FAULT.diagnosis(
        _filled(complaint.means, seen[0]),
        confidence=complaint.sure,
        seen=seen,
        culprit=Culprit(what=_filled(complaint.culprit, seen[0])),
        fix=complaint.fix,
        next=complaint.next,
    )


def _filled(text: str, seen: Sighting) -> str:
    """Fields that the line lacks are left out, with the brackets around them."""
    for name in _field_names():
        text = text.replace(f"{{{name}}}", seen.fields.get(name, "").strip())
    return " ".join(text.replace(" ()", "").split())


# --- a job for several GPUs that started as one process ------------------------------------------

ONE_RANK = FAULT.log_pattern(
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
def one_rank_for_several_gpus(wreckage: Wreckage) -> Diagnosis | None:
    """One process per GPU was requested, and the only one that started has world size 1."""
    one_rank, gpus = wreckage.seen(ONE_RANK), wreckage.seen(SEVERAL_GPUS)
    strategy = wreckage.seen(ONE_PER_GPU)
    member = any("MEMBER" in one.line.text for one in one_rank)
    if not one_rank or not gpus or not (strategy or member) or (wreckage.world_size or 1) > 1:
        return None
    count = len(gpus[0].fields["gpus"].split(","))
    srun = wreckage.seen(WITHOUT_SRUN)
    return FAULT.diagnosis(
        f"{count} GPUs with one process each were requested, but the job started with world size "
        "1: the scheduler or launcher started a single task",
        confidence=0.75 if srun else 0.65,
        seen=(*one_rank[:2], *gpus[:1], *strategy[:1], *srun[:1]),
        culprit=Culprit(what="number of tasks (1)"),
        fix=f"request `--ntasks-per-node={count}` from Slurm and start with srun, or start with "
        f"`torchrun --nproc-per-node={count}`; an inherited SLURM_NTASKS=1 of an interactive "
        "shell has the same effect",
        next="env | grep -E 'SLURM_N?TASKS|SLURM_NNODES|WORLD_SIZE'",
        unknown=("how the script was started: the log does not show the command",),
    )


# --- lint ----------------------------------------------------------------------------------------


@FAULT.lint
def counts_contradict(source: Source) -> Iterator[Finding]:
    for launch in source.launches:
        yield from map(FAULT.from_problem, counts.problems(source, launch))


@FAULT.lint
def host_listed_twice(source: Source) -> Iterator[Finding]:
    """Only with slots: without them a name is listed once for each slot."""
    seen: dict[str, HostSlots] = {}
    for host in source.hosts if source.kind is SourceKind.HOSTFILE else ():
        first = seen.setdefault(host.name, host)
        if first is not host and first.slots and host.slots:
            yield FAULT.warning(
                f"{host.name} is listed twice, first in line {first.place.line}",
                reason="DeepSpeed refuses such a file ('multiple entries'); Open MPI adds up the "
                f"slots, {first.slots + host.slots} in total",
                fix=f"use one line for each host: `{shell_words.word(host.name, 'HOST')} "
                f"slots={host.slots}`",
                at=host.place,
            )
