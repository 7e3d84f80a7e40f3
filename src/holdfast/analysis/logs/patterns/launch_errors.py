"""What launchers and frameworks print when the options of a job contradict each other."""

from __future__ import annotations

from typing import NamedTuple

from holdfast.analysis.logs.pattern import LogPattern
from holdfast.analysis.logs.patterns import start_checks, start_errors


class Complaint(NamedTuple):
    """An error of a launcher or framework, and what it means."""

    pattern: LogPattern
    means: str
    """a sentence; '{wanted}' and the like are replaced by the fields of the pattern"""
    culprit: str
    fix: str
    next: str = ""
    sure: float = 0.93


FEWER = "start as many processes as there are slots, or list more slots in the host file"
WITHIN = (
    "request no more for the step than the allocation has, and no more for the allocation than a "
    "node of the partition has"
)
COMPLAINTS = (
    Complaint(
        start_errors.SLOTS,
        "more processes ({wanted}{asked}) were requested than the launcher has slots",
        "slots",
        f"{FEWER} (`host slots=N`); --oversubscribe only where ranks may share cores",
    ),
    Complaint(
        start_errors.HOROVOD_SLOTS,
        "{wanted} processes were requested, but the hosts have {slots} slots",
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
        "mpirun could not place the processes on its nodes: {what}",
        "{what}",
        "make -np, the host list or host file and the scheduler's allocation agree; inside a Slurm "
        "job mpirun uses only that job's nodes",
        "mpirun --display-allocation hostname",
        sure=0.9,
    ),
    Complaint(
        start_errors.AS_ROOT,
        "{program} refused to run as root",
        "root",
        "run as an ordinary user, or in your own container use `--allow-run-as-root`",
    ),
    Complaint(
        start_errors.NO_PROGRAM,
        "the program to start was not found on a node: {what}{program}{hydra}{mpirun}"
        "{starter}{module}{spec}{pdsh}",
        "{what}{program}{hydra}{starter}{module}{spec}{pdsh}",
        "install the same MPI, interpreter and script at the same path on every node, use absolute "
        "paths, and give mpirun `--prefix` where a login shell would not find it; test it with "
        " `ssh NODE 'which orted python'`",
    ),
    Complaint(
        start_errors.NO_LOGIN,
        "the launcher could not log in to {host}{horovod}{here}{asked} by ssh, so nothing was "
        "started there",
        "{host}{horovod}{here}{asked}",
        "start sshd there and allow the launching user to log in without a password; for one "
        "machine remove the host file, and start each node by hand (torchrun) where there is no "
        "ssh; test it with `ssh -o BatchMode=yes NODE true`",
        sure=0.7,
    ),
    Complaint(
        start_errors.NO_INIT,
        "MPI did not initialize inside a rank: its library and the launcher that started it do not "
        "match, or it could not reach that launcher",
        "MPI_Init",
        "start it with the mpirun of the MPI that the program (and mpi4py) was built with, and "
        "check the errors of PMIx or the network further up",
        "which mpirun; python -c 'import mpi4py; print(mpi4py.get_config())'",
        sure=0.4,
    ),
    Complaint(
        start_errors.NO_DAEMON,
        "mpirun could not start its daemon on every node",
        "orted",
        "check the errors of ssh or the shell further up; then try it by hand (`ssh -o "
        "BatchMode=yes NODE which orted`): mpirun needs ssh without a password and the same Open "
        "MPI at the same path on each node",
        sure=0.5,
    ),
    Complaint(
        start_checks.LOCAL_RANK,
        "the launcher passed the script {flag}, which its argument parser does not accept",
        "{flag}",
        'start it with torchrun and read os.environ["LOCAL_RANK"], or accept both spellings: '
        'parser.add_argument("--local_rank", "--local-rank", type=int)',
    ),
    Complaint(
        start_checks.MISPLACED,
        "the script received {flag}, which was meant for the launcher",
        "{flag}",
        "put options of the launcher before the script's name: `torchrun --nproc-per-node=N SCRIPT "
        "…`",
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
        "DeepSpeed's launcher could not use its host file or its filters: {what}",
        "{what}",
        "use one line per host, `name slots=N`; --include, --exclude and --num_nodes must name "
        "hosts of that file, and cannot be combined",
    ),
    Complaint(
        start_checks.ACCELERATE,
        "accelerate's configuration contradicts itself: {what}",
        "accelerate config",
        "set --num_processes to the number of GPUs, and select only one kind of launch",
        "accelerate env",
    ),
    Complaint(
        start_checks.LIGHTNING,
        "Slurm and Lightning were given different numbers: {what}{mine} {slurm}",
        "{what}{slurm}",
        "make --ntasks-per-node equal to the Trainer's devices and --nodes equal to num_nodes, and "
        "start the script with srun",
        "scontrol show job $SLURM_JOB_ID",
    ),
    Complaint(
        start_errors.SLURM,
        "Slurm cannot satisfy the request: {what}{fatal}",
        "{what}{fatal}",
        f"{WITHIN}, and use the names of partition, account and resources of this cluster",
        "scontrol show job $SLURM_JOB_ID; sinfo -o '%P %c %m %G'",
        sure=0.9,
    ),
    Complaint(
        start_errors.SLURM_OTHER,
        "Slurm did not accept the request: {what}{fewer}",
        "{what}{fewer}",
        WITHIN,
        "scontrol show job $SLURM_JOB_ID; sinfo -o '%P %c %m %G'",
        sure=0.6,
    ),
    Complaint(
        start_errors.SLURM_WAITS,
        "srun waited for resources that another step of the same job holds ({what})",
        "{what}",
        "start the inner step with `srun --overlap`, or give each step its own share of the "
        "allocation; do not call srun from inside srun",
        "squeue --steps -j $SLURM_JOB_ID",
        sure=0.6,
    ),
    Complaint(
        start_errors.RESOURCES,
        "more was requested than the cluster reports to have: {what}",
        "{what}",
        "check what it reports (a node that joined without its GPUs does not count), and request "
        "no more, or wait until other jobs release it",
        "ray status; kubectl describe nodes | grep -A8 Allocatable",
        sure=0.75,
    ),
    Complaint(
        start_errors.IMAGE,
        "the image of a container could not be pulled, so its ranks never started: {image}{again}",
        "{image}{again}",
        "check the image's name, tag and platform, and the registry's credentials "
        "(imagePullSecrets) on that node",
        "kubectl get events --sort-by=.lastTimestamp | grep -i pull",
        sure=0.85,
    ),
    Complaint(
        start_errors.TWO_AGENTS,
        "several ft_launchers were started on one node{host}; it needs exactly one, which starts "
        "the ranks of that node",
        "ft_launcher",
        "start one task for each node: `srun --ntasks-per-node=1 ft_launcher …`",
    ),
    Complaint(
        start_checks.DIVISIBLE,
        "the number of ranks does not match the parallel sizes: {world}{size}{have} ranks, {by}"
        "{dims}{need} required",
        "world size {world}{size}{have}",
        "start as many ranks as the product of the parallel sizes, or a multiple of it; or change "
        "the sizes",
    ),
    Complaint(
        start_checks.GROUP,
        "the script created a group of ranks that were never started: its parallel sizes need more "
        "processes than the launcher started",
        "new_group",
        "start as many ranks as the mesh or the parallel sizes of the script need, or reduce them",
        sure=0.75,
    ),
    Complaint(
        start_checks.BATCH,
        "DeepSpeed's batch sizes do not match the number of ranks: {total} is not {micro} x "
        "{steps} x {world}",
        "train_batch_size",
        "set two of train_batch_size, micro batch and accumulation steps (the product of the last "
        "two and the ranks is the first), or start the number of ranks it was set for",
        sure=0.75,
    ),
)
