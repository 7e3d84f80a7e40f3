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

from typing import NamedTuple

from holdfast.fault import Fault
from holdfast.model import Culprit, Diagnosis
from holdfast.remains.nouns import Sighting, Wreckage
from holdfast.remains.signature import Role, Signature

FAULT = Fault(code="HOLD901", slug="launcher-config")


class Complaint(NamedTuple):
    """What a launcher or a framework says when the numbers do not fit."""

    wording: Signature
    means: str
    """'{wanted}' and the like stand for the fields of the wording; the rest of the sentence"""
    culprit: str
    fix: str
    next: str = ""
    sure: float = 0.93


SLOTS = FAULT.wording(
    "mpi-slots",
    r"not enough slots available in the system(?: to satisfy the (?P<wanted>\d+))?"
    r"|requested more processes than the ppr"
    r"|(?:Not enough slots on the hosts to fulfill the (?P<asked>\d+))",
    anchors=("not enough slots available", "than the ppr", "Not enough slots on the hosts"),
    example="There are not enough slots available in the system to satisfy the 8 slots",
)
HOROVOD_SLOTS = FAULT.wording(
    "horovod-slots",
    r"Requested more processes \((?P<wanted>\d+)\) than there are available slots "
    r"\((?P<slots>\d+)\)",
    anchors="than there are available slots",
    example="ValueError: Requested more processes (8) than there are available slots (4)",
)
NO_PMI = FAULT.wording(
    "mpi-pmi",
    r"appears to have been direct launched using \"srun\"",
    anchors="appears to have been direct launched",
    example='The application appears to have been direct launched using "srun",',
)
LOCAL_RANK = FAULT.wording(
    "local-rank",
    r"unrecognized arguments?:.*?(?P<flag>--local[-_]rank)\b",
    anchors=("arguments: --local", "recognized arguments:"),
    example="train.py: error: unrecognized arguments: --local-rank=0",
)
TORCHRUN = FAULT.wording(
    "torchrun",
    r"(?P<what>Unsupported nproc_per_node value: ?\S*"
    r"|nnodes=\S+ is not in \"MIN:MAX\" format"
    r"|min_nodes must be > 0 and <= max_nodes[^\n]*"
    r"|(?:torchrun|run\.py): error: (?!unrecognized arguments: --local)[^\n]*)",
    anchors=(
        "Unsupported nproc_per_node",
        'not in "MIN:MAX" format',
        "min_nodes must be > 0",
        "torchrun: error: ",
        "run.py: error: ",
    ),
    example="ValueError: Unsupported nproc_per_node value: gpus",
)
HOSTFILE = FAULT.wording(
    "deepspeed-hostfile",
    r"(?P<what>No slot '\d+' specified on host '[^']*'|Hostname '[^']*' not found in hostfile"
    r"|Hostfile contains a bad entry: [^,]*|Hostfile contains multiple entries for [^,\s]+"
    r"|Hostfile is (?:empty or )?not formatted correctly|host \S+ is already defined"
    r"|Num nodes is >1 but no extra nodes available via hostfile"
    r"|Cannot specify num_nodes/gpus with include/exclude)",
    anchors=(
        "specified on host '",
        "not found in hostfile",
        "Hostfile contains ",
        "not formatted correctly",
        " is already defined",
        "nodes available via hostfile",
        "num_nodes/gpus with include",
    ),
    example="ValueError: No slot '4' specified on host 'worker-0'",
)
ACCELERATE = FAULT.wording(
    "accelerate",
    r"(?P<what>need to use at least 2 processes to use `?-*multi_gpu"
    r"|Less than two GPU ids were configured"
    r"|only use one of `--cpu`, `--multi_gpu`[^.]*"
    r"|need to manually pass in `--num_processes`)",
    anchors=(
        "at least 2 processes to use",
        "Less than two GPU ids",
        "can only use one of `--",
        "manually pass in `--num_processes`",
    ),
    example="ValueError: You need to use at least 2 processes to use `--multi_gpu`.",
)
LIGHTNING = FAULT.wording(
    "lightning-slurm",
    r"You set `(?P<what>--ntasks=\d+)` in your SLURM bash script"
    r"|You set `(?P<mine>(?:devices|num_nodes)=\d+)` in Lightning, but the number of .*? "
    r"configured in SLURM `(?P<slurm>--[\w-]+=\d+)` does not match",
    anchors=("in your SLURM bash script", "in Lightning, but the number of"),
    example="ValueError: You set `devices=4` in Lightning, but the number of tasks per node "
    "configured in SLURM `--ntasks-per-node=1` does not match. HINT: Set `devices=1`.",
)
SLURM = FAULT.wording(
    "slurm",
    r"(?P<what>More processors requested than permitted"
    r"|Requested node configuration is not available)",
    anchors=("More processors requested than", "Requested node configuration is not"),
    example="srun: error: Unable to create step for job 4711: More processors requested than "
    "permitted",
)
DIVISIBLE = FAULT.wording(
    "parallel-sizes",
    r"world[ _]size ?\((?P<world>\d+)\) is not divisible by (?P<by>.*?\d+\)?)"
    r"|Invalid parallel dims: (?P<dims>.*?WORLD_SIZE\(\d+\))"
    r"|Mesh should not be bigger than default world size(?: (?P<have>\d+))?"
    r"(?:, but found (?P<need>\d+) ranks)?"
    r"|World size \((?P<size>\d+)\) is not valid with the current list of valid GPU counts",
    anchors=(
        ") is not divisible by ",
        "Invalid parallel dims",
        "bigger than default world size",
        "is not valid with the current list",
    ),
    example="AssertionError: world size (6) is not divisible by total_model_size "
    "(total_model_size=4)",
)
BATCH = FAULT.wording(
    "deepspeed-batch",
    r"train_batch_size is not equal to micro_batch_per_gpu \* gradient_acc_step \* world_size"
    r"(?: (?P<total>\d+) ?!= ?(?P<micro>\d+) ?\* ?(?P<steps>\d+) ?\* ?(?P<world>\d+))?",
    anchors="train_batch_size is not equal",
    example="AssertionError: Check batch related parameters. train_batch_size is not equal to "
    "micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8 * 1",
)

FEWER = "ask for as many processes as there are slots, or name more slots in the host file"
COMPLAINTS = (
    Complaint(
        SLOTS,
        "mpirun was asked for more processes ({wanted}{asked}) than it has slots",
        "slots",
        f"{FEWER} (`host slots=N`); --oversubscribe only where ranks may share cores",
    ),
    Complaint(
        HOROVOD_SLOTS,
        "{wanted} processes were asked for, but the hosts have {slots} slots",
        "-np {wanted}",
        FEWER,
    ),
    Complaint(
        NO_PMI,
        "srun started an MPI program whose MPI was built without Slurm's process interface",
        "srun",
        "start it with mpirun inside the allocation, or `srun --mpi=pmix` with an MPI built for it",
        "srun --mpi=list",
    ),
    Complaint(
        LOCAL_RANK,
        "the launcher handed the script {flag}, which its argument parser does not know",
        "{flag}",
        'start it with torchrun and read os.environ["LOCAL_RANK"], or accept both spellings: '
        'parser.add_argument("--local_rank", "--local-rank", type=int)',
        "torchrun --nproc-per-node=N SCRIPT",
    ),
    Complaint(
        TORCHRUN,
        "torchrun did not accept its arguments: {what}",
        "{what}",
        "correct that argument",
        "torchrun --help",
    ),
    Complaint(
        HOSTFILE,
        "DeepSpeed's launcher cannot use its host file or its filters: {what}",
        "{what}",
        "one line per host, `name slots=N`; --include, --exclude and --num_nodes must name what "
        "is in it, and do not mix",
        "cat HOSTFILE",
    ),
    Complaint(
        ACCELERATE,
        "accelerate's configuration contradicts itself: {what}",
        "accelerate config",
        "give --num_processes as the number of GPUs, and one kind of launch only",
        "accelerate env",
    ),
    Complaint(
        LIGHTNING,
        "Slurm and Lightning were told different numbers: {what}{mine} {slurm}",
        "{what}{slurm}",
        "make --ntasks-per-node equal to the Trainer's devices and --nodes equal to num_nodes, and "
        "start the script with srun",
        "scontrol show job $SLURM_JOB_ID",
    ),
    Complaint(
        SLURM,
        "Slurm cannot give this step what it asks for: {what}",
        "{what}",
        "ask the step for no more than the allocation holds, and the allocation for no more "
        "than a node of the partition has",
        "scontrol show job $SLURM_JOB_ID",
        sure=0.9,
    ),
    Complaint(
        DIVISIBLE,
        "the number of ranks does not fit the parallel sizes: {world}{size}{have} ranks, {by}"
        "{dims}{need} asked for",
        "world size {world}{size}{have}",
        "start as many ranks as the product of the parallel sizes, or a multiple of it; or change "
        "the sizes",
    ),
    Complaint(
        BATCH,
        "DeepSpeed's batch sizes are not made for this number of ranks: {total} is not {micro} x "
        "{steps} x {world}",
        "train_batch_size",
        "train_batch_size = micro batch x accumulation steps x ranks: give two of them and leave "
        "the third out, or start the number of ranks it was made for",
        sure=0.75,
    ),
)

WORDS = tuple(name for one in COMPLAINTS for name in one.wording.regex.groupindex)


@FAULT.recognise
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
    for name in WORDS:
        text = text.replace(f"{{{name}}}", seen.fields.get(name, "").strip())
    return " ".join(text.replace(" ()", "").split())


# --- a job for several GPUs that came up as one process ------------------------------------------

ALONE = FAULT.wording(
    "one-rank",
    r"\bworld_size(?:\(\))?\s?[=:]\s?1\b|\bMEMBER: 1/1\b|num_processes\s?[=:]\s?1\b",
    anchors=("world_size=1", "world_size: 1", "world_size()=1", "MEMBER: 1/1", "num_processes"),
    example="Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1",
    role=Role.CONTEXT,
)
SEVERAL_GPUS = FAULT.wording(
    "several-gpus",
    r"(?:devices?=|CUDA_VISIBLE_DEVICES: )\[(?P<gpus>\d+, ?\d[\d, ]*)\]",
    anchors=("device=[", "devices=[", "CUDA_VISIBLE_DEVICES: ["),
    example="LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1,2]",
    role=Role.CONTEXT,
)
ONE_PER_GPU = FAULT.wording(
    "strategy",
    r"\b(?:DDP|FSDP|DeepSpeed|ModelParallel)\w*Strategy\b|distributed_backend=nccl",
    anchors=("Strategy", "distributed_backend="),
    example="strategy=<lightning.pytorch.strategies.ddp.DDPStrategy object at 0x7f00>",
    role=Role.CONTEXT,
)
WITHOUT_SRUN = FAULT.wording(
    "srun-unused",
    r"`srun` command is available on your system but is not used",
    anchors="`srun` command is available",
    example="The `srun` command is available on your system but is not used. HINT: If your "
    "intention is to run Lightning on SLURM, prepend your python command with `srun`",
    role=Role.ADVICE,
)


@FAULT.recognise
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
