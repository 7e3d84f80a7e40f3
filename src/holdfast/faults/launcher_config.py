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
from holdfast.remains import start_checks, starters
from holdfast.remains.nouns import Sighting, Wreckage
from holdfast.remains.signature import Role, Signature

FAULT = Fault(code="HOLD901", slug="launcher-config")
FAULT.signatures.extend((*starters.ALL, *start_checks.ALL))


class Complaint(NamedTuple):
    """What a launcher or a framework says when the numbers do not fit."""

    wording: Signature
    means: str
    """'{wanted}' and the like stand for the fields of the wording; the rest of the sentence"""
    culprit: str
    fix: str
    next: str = ""
    sure: float = 0.93


FEWER = "ask for as many processes as there are slots, or name more slots in the host file"
WITHIN = (
    "ask the step for no more than the allocation holds, and the allocation for no more than a "
    "node of the partition has"
)
COMPLAINTS = (
    Complaint(
        starters.SLOTS,
        "the launcher was asked for more processes ({wanted}{asked}) than it has slots",
        "slots",
        f"{FEWER} (`host slots=N`); --oversubscribe only where ranks may share cores",
    ),
    Complaint(
        starters.HOROVOD_SLOTS,
        "{wanted} processes were asked for, but the hosts have {slots} slots",
        "-np {wanted}",
        FEWER,
    ),
    Complaint(
        starters.NO_PMI,
        "srun started an MPI program whose MPI was built without Slurm's process interface",
        "srun",
        "start it with mpirun inside the allocation, or `srun --mpi=pmix` with an MPI built for it",
        "srun --mpi=list",
    ),
    Complaint(
        starters.MAPPING,
        "mpirun could not place the processes on the nodes it was given: {what}",
        "{what}",
        "make -np, the host list or host file and the scheduler's allocation say the same; inside "
        "a Slurm job mpirun uses that job's nodes and no others",
        "mpirun --display-allocation …",
        sure=0.9,
    ),
    Complaint(
        starters.AS_ROOT,
        "{program} refuses to start anything as root unless told to",
        "root",
        "run as an ordinary user, or, in a container of your own, `--allow-run-as-root`",
    ),
    Complaint(
        starters.NO_PROGRAM,
        "the program to be started was not found on a node: {what}{program}{hydra}{mpirun}"
        "{starter}{module}{spec}{pdsh}",
        "{what}{program}{hydra}{starter}{module}{spec}{pdsh}",
        "have the same MPI, interpreter and script at the same path on every node, name them by "
        "their whole path, and give mpirun `--prefix` where a login shell would not find it",
        "ssh NODE 'which orted python'",
    ),
    Complaint(
        starters.NO_LOGIN,
        "the launcher could not log in to {host}{horovod}{here}{asked} by ssh, so nothing was "
        "started there",
        "{host}{horovod}{here}{asked}",
        "start sshd there and let the launching user in without a password; for one machine leave "
        "the host file out, and start each node by hand (torchrun) where there is no ssh",
        "ssh -o BatchMode=yes NODE true",
        sure=0.7,
    ),
    Complaint(
        starters.NO_INIT,
        "MPI did not start up inside a rank: the library it was built with and the launcher that "
        "started it do not fit, or it could not reach that launcher",
        "MPI_Init",
        "start it with the mpirun of the very MPI that the program was built with (mpi4py too), "
        "and look above for what PMIx or the network said",
        "which mpirun; python -c 'import mpi4py; print(mpi4py.get_config())'",
        sure=0.4,
    ),
    Complaint(
        starters.NO_DAEMON,
        "mpirun could not start its helper on every node",
        "orted",
        "look above for what ssh or the shell said; then try it by hand: mpirun needs ssh without "
        "a password and the same Open MPI at the same path on each of them",
        "ssh -o BatchMode=yes NODE which orted",
        sure=0.5,
    ),
    Complaint(
        start_checks.LOCAL_RANK,
        "the launcher handed the script {flag}, which its argument parser does not know",
        "{flag}",
        'start it with torchrun and read os.environ["LOCAL_RANK"], or accept both spellings: '
        'parser.add_argument("--local_rank", "--local-rank", type=int)',
        "torchrun --nproc-per-node=N SCRIPT",
    ),
    Complaint(
        start_checks.MISPLACED,
        "the script was handed {flag}, which was meant for the launcher",
        "{flag}",
        "what the launcher is to read stands before the script's name: `torchrun "
        "--nproc-per-node=N SCRIPT …`",
        "torchrun --nproc-per-node=N SCRIPT",
        sure=0.9,
    ),
    Complaint(
        start_checks.TORCHRUN,
        "torchrun did not accept its arguments: {what}",
        "{what}",
        "correct that argument",
        "torchrun --help",
    ),
    Complaint(
        start_checks.HOSTFILE,
        "DeepSpeed's launcher cannot use its host file or its filters: {what}",
        "{what}",
        "one line per host, `name slots=N`; --include, --exclude and --num_nodes must name what "
        "is in it, and do not mix",
        "cat HOSTFILE",
    ),
    Complaint(
        start_checks.ACCELERATE,
        "accelerate's configuration contradicts itself: {what}",
        "accelerate config",
        "give --num_processes as the number of GPUs, and one kind of launch only",
        "accelerate env",
    ),
    Complaint(
        start_checks.LIGHTNING,
        "Slurm and Lightning were told different numbers: {what}{mine} {slurm}",
        "{what}{slurm}",
        "make --ntasks-per-node equal to the Trainer's devices and --nodes equal to num_nodes, and "
        "start the script with srun",
        "scontrol show job $SLURM_JOB_ID",
    ),
    Complaint(
        starters.SLURM,
        "Slurm cannot give what was asked for: {what}{fatal}",
        "{what}{fatal}",
        f"{WITHIN}, and name the partition, account and resources as this cluster spells them",
        "scontrol show job $SLURM_JOB_ID; sinfo -o '%P %c %m %G'",
        sure=0.9,
    ),
    Complaint(
        starters.SLURM_OTHER,
        "Slurm did not accept the request as it stands: {what}{fewer}",
        "{what}{fewer}",
        WITHIN,
        "scontrol show job $SLURM_JOB_ID; sinfo -o '%P %c %m %G'",
        sure=0.6,
    ),
    Complaint(
        starters.SLURM_WAITS,
        "srun waits for what another step of the same job holds ({what})",
        "{what}",
        "start the inner step with `srun --overlap`, or give each step its own share of the "
        "allocation; do not call srun from inside srun",
        "squeue --steps -j $SLURM_JOB_ID",
        sure=0.6,
    ),
    Complaint(
        starters.RESOURCES,
        "more was asked for than the cluster shows it has: {what}",
        "{what}",
        "see what it believes to have (a node that joined without its GPUs counts for nothing), "
        "and ask for no more, or wait until others give it back",
        "ray status; kubectl describe nodes | grep -A8 Allocatable",
        sure=0.75,
    ),
    Complaint(
        start_checks.DIVISIBLE,
        "the number of ranks does not fit the parallel sizes: {world}{size}{have} ranks, {by}"
        "{dims}{need} asked for",
        "world size {world}{size}{have}",
        "start as many ranks as the product of the parallel sizes, or a multiple of it; or change "
        "the sizes",
    ),
    Complaint(
        start_checks.GROUP,
        "the script makes a group of ranks that were never started: its parallel sizes ask for "
        "more processes than the launcher did",
        "new_group",
        "start as many ranks as the mesh or the parallel sizes of the script need, or make them "
        "smaller",
        "torchrun --nproc-per-node=N SCRIPT",
        sure=0.75,
    ),
    Complaint(
        start_checks.BATCH,
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
