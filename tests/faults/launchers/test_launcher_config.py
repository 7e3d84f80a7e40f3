import pytest

from holdfast.analysis.logs.patterns.launch_errors import COMPLAINTS, Complaint
from holdfast.catalogue import by_slug
from tests.analysis.logs.patterns.made import wreckage
from tests.faults.launchers.launch_scripts_launcher_config import CASES
from tests.faults.table import explain_table, lint_table, passes_over, recognises

ALONE = "Initializing distributed: GLOBAL_RANK: 0, MEMBER: 1/1"
GPUS = "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0,1,2]"
SRUN = "The `srun` command is available on your system but is not used. HINT: If your intention"

test_explain = explain_table(
    "launcher-config",
    recognises(
        wreckage("run.sh: line 3: torchrun: command not found"),
        sure=0.93,
        what="torchrun",
        saying=["was not found on a node: torchrun"],
    ),
    recognises(
        wreckage("/usr/bin/python: No module named torch.distributed.run"),
        sure=0.93,
        what="torch.distributed.run",
        saying=["the same path on every node"],
    ),
    recognises(
        wreckage("RuntimeError: launcher 'pdsh' not installed."),
        sure=0.93,
        what="pdsh",
        saying=["was not found"],
    ),
    recognises(
        wreckage(
            "srun: fatal: SLURM_MEM_PER_CPU, SLURM_MEM_PER_GPU, and SLURM_MEM_PER_NODE are "
            "mutually exclusive."
        ),
        sure=0.9,
        what="mutually exclusive",
        saying=["Slurm cannot satisfy the request"],
    ),
    recognises(
        wreckage("srun: Warning: can't run 1 processes on 2 nodes, setting nnodes to 1"),
        sure=0.6,
        what="can't run 1 processes on 2 nodes",
        saying=["Slurm did not accept the request"],
    ),
    recognises(
        wreckage("ValueError: Total available GPUs 0 is less than total desired GPUs 8"),
        sure=0.75,
        what="Total available GPUs 0",
        saying=["more was requested than the cluster reports", "ray status"],
    ),
    recognises(
        wreckage("0/8 nodes are available: 2 node(s) had taints, 6 Insufficient nvidia.com/gpu."),
        sure=0.75,
        what="6 Insufficient nvidia.com/gpu",
        saying=["kubectl describe nodes"],
    ),
    passes_over(wreckage("bash: nvidia-smi: command not found")),
    passes_over(wreckage("ModuleNotFoundError: No module named 'flash_attn'")),
    passes_over(wreckage("8/8 nodes are available: starting")),
    recognises(
        wreckage("train.py: error: unrecognized arguments: --lr 3 --nproc_per_node 2"),
        sure=0.9,
        what="--nproc_per_node",
        saying=["meant for the launcher", "before the script's name"],
    ),
    recognises(  # the launcher's own complaint of its own flag
        wreckage("torchrun: error: unrecognized arguments: --nproc-per-node=1"),
        sure=0.93,
        what="torchrun: error",
        saying=["torchrun did not accept"],
    ),
    recognises(
        wreckage("[node-a:04757] OPAL ERROR: Unreachable in file pmix3x_client.c at line 113"),
        sure=0.4,
        what="MPI_Init",
        saying=["MPI did not initialize"],
    ),
    recognises(
        wreckage("All nodes which are allocated for this job are already filled."),
        sure=0.93,
        saying=["more processes were requested than the launcher has slots"],
    ),
    recognises(
        wreckage("Your job failed to map. Either no mapper was available, or none"),
        sure=0.9,
        what="Your job failed to map",
        saying=["could not place the processes", "--display-allocation"],
    ),
    recognises(
        wreckage("bash: /usr/local/bin/orted: No such file or directory"),
        sure=0.93,
        what="/usr/local/bin/orted",
        saying=["was not found on a node"],
    ),
    recognises(
        wreckage("slurmstepd: error: execve(): python3.11: No such file or directory"),
        sure=0.93,
        what="python3.11",
        saying=["the same path on every node"],
    ),
    recognises(
        wreckage("mpirun has detected an attempt to run as root."),
        sure=0.93,
        what="root",
        saying=["--allow-run-as-root"],
    ),
    recognises(
        wreckage("ORTE was unable to reliably start one or more daemons."),
        sure=0.5,
        saying=["daemon on every node", "check the errors of ssh or the shell further up"],
    ),
    recognises(
        wreckage("localhost: ssh: connect to host localhost port 22: Connection refused"),
        sure=0.7,
        what="localhost",
        saying=["log in to localhost", "remove the host file"],
    ),
    recognises(
        wreckage(
            "subprocess.CalledProcessError: Command '['ssh worker-1 hostname -I']' returned "
            "non-zero exit status 255."
        ),
        sure=0.7,
        what="worker-1",
        saying=["could not log in to worker-1"],
    ),
    recognises(
        wreckage(
            "subprocess.CalledProcessError: Command 'ssh -o PasswordAuthentication=no worker-2 "
            "hostname' returned non-zero exit status 255."
        ),
        sure=0.7,
        what="worker-2",
        saying=["could not log in to worker-2"],
    ),
    recognises(
        wreckage(
            "srun: error: Unable to create step for job 7: Invalid generic resource (gres) "
            "specification"
        ),
        sure=0.9,
        what="Invalid generic resource",
        saying=["Slurm cannot satisfy the request", "sinfo"],
    ),
    recognises(
        wreckage("salloc: error: Unable to allocate resources: Invalid partition name specified"),
        sure=0.9,
        what="Invalid partition name",
        saying=["partition, account"],
    ),
    recognises(
        wreckage("sbatch: error: Batch job submission failed: Requested reservation is invalid"),
        sure=0.6,
        what="Requested reservation is invalid",
        saying=["did not accept"],
    ),
    recognises(
        wreckage(
            "srun: Job 7 step creation temporarily disabled, retrying (Requested nodes are busy)"
        ),
        sure=0.6,
        what="Requested nodes are busy",
        saying=["--overlap"],
    ),
    recognises(
        wreckage(
            "RuntimeError: the new group's world size should be less or equal to the world size "
            "set by init_process_group"
        ),
        sure=0.75,
        what="new_group",
        saying=["never started"],
    ),
    passes_over(  # Slurm's own trouble, or one that passes
        wreckage(
            "srun: error: Unable to allocate resources: Unable to contact slurm controller",
            "srun: error: Unable to create step for job 7: Job/step already completing or "
            "completed",
            "sbatch: error: Batch job submission failed: Requested nodes are busy",
        )
    ),
    passes_over(wreckage("ssh: connect to host worker-1 port 22: Connection refused")),
    passes_over(
        wreckage(
            "subprocess.CalledProcessError: Command '['python', 'train.py']' returned non-zero "
            "exit status 255."
        )
    ),
    passes_over(wreckage("cat: /data/list: No such file or directory")),
    recognises(
        wreckage("ValueError: Process number should not be larger than total available slots."),
        sure=0.93,
        saying=["more processes"],
    ),
    recognises(
        wreckage("A sequential map was requested, but not enough node entries"),
        sure=0.93,
        saying=["more processes"],
    ),
    recognises(
        wreckage("There are not enough slots available in the system to satisfy the 8 slots"),
        sure=0.93,
        what="slots",
        saying=["more processes (8)"],
    ),
    recognises(  # wrapped before the number
        wreckage("There are not enough slots available in the system"),
        sure=0.93,
        what="slots",
        saying=["more processes were requested than the launcher has slots"],
    ),
    recognises(
        wreckage("train.py: error: unrecognized arguments: --lr 3 --local-rank=0"),
        sure=0.93,
        what="--local-rank",
        saying=["LOCAL_RANK", "torchrun"],
    ),
    recognises(
        wreckage("ValueError: No slot '4' specified on host 'worker-0'"),
        sure=0.93,
        what="No slot '4'",
        saying=["worker-0", "slots=N"],
    ),
    recognises(
        wreckage(
            "ValueError: You set `devices=4` in Lightning, but the number of tasks per node "
            "configured in SLURM `--ntasks-per-node=1` does not match. HINT: Set `devices=1`."
        ),
        sure=0.93,
        what="--ntasks-per-node=1",
        saying=["devices=4", "srun"],
    ),
    recognises(
        wreckage("RuntimeError: world_size (6) is not divisible by 4"),
        sure=0.93,
        what="world size 6",
        saying=["6 ranks, 4 required"],
    ),
    recognises(
        wreckage(
            "AssertionError: Check batch related parameters. train_batch_size is not equal to "
            "micro_batch_per_gpu * gradient_acc_step * world_size 256 != 4 * 8 * 1"
        ),
        sure=0.75,
        what="train_batch_size",
        saying=["256 is not 4 x 8 x 1"],
    ),
    recognises(wreckage(ALONE, GPUS), sure=0.65, what="tasks", saying=["3 GPUs"]),
    recognises(
        wreckage(SRUN, ALONE, GPUS), sure=0.75, what="tasks", saying=["--ntasks-per-node=3"]
    ),
    passes_over(wreckage("world_size=1", GPUS)),  # one process may use several GPUs by itself
    passes_over(wreckage(ALONE, "LOCAL_RANK: 0 - CUDA_VISIBLE_DEVICES: [0]")),
    passes_over(wreckage(SRUN)),  # a hint alone
    passes_over(wreckage("train.py: error: unrecognized arguments: --lerning-rate 3")),
    passes_over(wreckage("batch size (6) is not divisible by 4")),
)


@pytest.mark.parametrize("complaint", COMPLAINTS, ids=lambda one: one.pattern.name)
def test_every_complaint_makes_a_whole_sentence(complaint: Complaint) -> None:
    faces = by_slug("launcher-config").explain_faces
    found = [d for face in faces if (d := face(wreckage(complaint.pattern.example)))]
    assert len(found) == 1
    assert found[0].confidence == complaint.sure
    assert not set("{}") & set(found[0].reason), "every gap is filled"
    assert found[0].culprit is not None
    assert found[0].culprit.what


test_lint = lint_table("launcher-config", *CASES)
