"""What launchers and frameworks say when the numbers of a job do not fit together."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.patterns import start_checks, start_errors


class Complaint(NamedTuple):
    """What a launcher or a framework says when the numbers do not fit."""

    wording: LogPattern
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
        start_errors.SLOTS,
        "the launcher was asked for more processes ({wanted}{asked}) than it has slots",
        "slots",
        f"{FEWER} (`host slots=N`); --oversubscribe only where ranks may share cores",
    ),
    Complaint(
        start_errors.HOROVOD_SLOTS,
        "{wanted} processes were asked for, but the hosts have {slots} slots",
        "-np {wanted}",
        FEWER,
    ),
    Complaint(
        start_errors.NO_PMI,
        "srun started an MPI program whose MPI was built without Slurm's process interface",
        "srun",
        "start it with mpirun inside the allocation, or `srun --mpi=pmix` with an MPI built for it",
        "srun --mpi=list",
    ),
    Complaint(
        start_errors.MAPPING,
        "mpirun could not place the processes on the nodes it was given: {what}",
        "{what}",
        "make -np, the host list or host file and the scheduler's allocation say the same; inside "
        "a Slurm job mpirun uses that job's nodes and no others",
        "mpirun --display-allocation hostname",
        sure=0.9,
    ),
    Complaint(
        start_errors.AS_ROOT,
        "{program} refuses to start anything as root unless told to",
        "root",
        "run as an ordinary user, or, in a container of your own, `--allow-run-as-root`",
    ),
    Complaint(
        start_errors.NO_PROGRAM,
        "the program to be started was not found on a node: {what}{program}{hydra}{mpirun}"
        "{starter}{module}{spec}{pdsh}",
        "{what}{program}{hydra}{starter}{module}{spec}{pdsh}",
        "have the same MPI, interpreter and script at the same path on every node, name them by "
        "their whole path, and give mpirun `--prefix` where a login shell would not find it; test "
        "it with `ssh NODE 'which orted python'`",
    ),
    Complaint(
        start_errors.NO_LOGIN,
        "the launcher could not log in to {host}{horovod}{here}{asked} by ssh, so nothing was "
        "started there",
        "{host}{horovod}{here}{asked}",
        "start sshd there and let the launching user in without a password; for one machine leave "
        "the host file out, and start each node by hand (torchrun) where there is no ssh; test it "
        "with `ssh -o BatchMode=yes NODE true`",
        sure=0.7,
    ),
    Complaint(
        start_errors.NO_INIT,
        "MPI did not start up inside a rank: the library it was built with and the launcher that "
        "started it do not fit, or it could not reach that launcher",
        "MPI_Init",
        "start it with the mpirun of the very MPI that the program was built with (mpi4py too), "
        "and look above for what PMIx or the network said",
        "which mpirun; python -c 'import mpi4py; print(mpi4py.get_config())'",
        sure=0.4,
    ),
    Complaint(
        start_errors.NO_DAEMON,
        "mpirun could not start its helper on every node",
        "orted",
        "look above for what ssh or the shell said; then try it by hand (`ssh -o BatchMode=yes "
        "NODE which orted`): mpirun needs ssh without a password and the same Open MPI at the same "
        "path on each of them",
        sure=0.5,
    ),
    Complaint(
        start_checks.LOCAL_RANK,
        "the launcher handed the script {flag}, which its argument parser does not know",
        "{flag}",
        'start it with torchrun and read os.environ["LOCAL_RANK"], or accept both spellings: '
        'parser.add_argument("--local_rank", "--local-rank", type=int)',
    ),
    Complaint(
        start_checks.MISPLACED,
        "the script was handed {flag}, which was meant for the launcher",
        "{flag}",
        "what the launcher is to read stands before the script's name: `torchrun "
        "--nproc-per-node=N SCRIPT …`",
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
        start_errors.SLURM,
        "Slurm cannot give what was asked for: {what}{fatal}",
        "{what}{fatal}",
        f"{WITHIN}, and name the partition, account and resources as this cluster spells them",
        "scontrol show job $SLURM_JOB_ID; sinfo -o '%P %c %m %G'",
        sure=0.9,
    ),
    Complaint(
        start_errors.SLURM_OTHER,
        "Slurm did not accept the request as it stands: {what}{fewer}",
        "{what}{fewer}",
        WITHIN,
        "scontrol show job $SLURM_JOB_ID; sinfo -o '%P %c %m %G'",
        sure=0.6,
    ),
    Complaint(
        start_errors.SLURM_WAITS,
        "srun waits for what another step of the same job holds ({what})",
        "{what}",
        "start the inner step with `srun --overlap`, or give each step its own share of the "
        "allocation; do not call srun from inside srun",
        "squeue --steps -j $SLURM_JOB_ID",
        sure=0.6,
    ),
    Complaint(
        start_errors.RESOURCES,
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
