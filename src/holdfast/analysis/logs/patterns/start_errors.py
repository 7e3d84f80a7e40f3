"""What the programs that start processes say when they cannot: Open MPI, Horovod, Slurm, ssh.

They speak before any rank exists, so there is no rank to blame: only a number that does not fit,
a program that is not there, or a machine that refuses the login.
"""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role

_refusal = functools.partial(LogPattern, slug="launcher-config")

_STARTERS = ("torchrun", "deepspeed", "accelerate", "horovodrun", "mpirun", "mpiexec", "srun")

# --- Open MPI, Horovod ---------------------------------------------------------------------------

SLOTS = _refusal(
    name="starters: slots",
    pattern=r"not enough slots available in the system(?: to satisfy the (?P<wanted>\d+))?"
    r"|requested more processes than the ppr"
    r"|(?:Not enough slots on the hosts to fulfill the (?P<asked>\d+))"
    # Horovod before 0.20 counts them itself.
    r"|Process number should not be larger than total available slots"
    r"|map was requested, but not enough node entries"
    r"|All nodes which are allocated for this job are already filled",
    anchors=(
        "not enough slots available",
        "than the ppr",
        "Not enough slots on the hosts",
        "larger than total available slots",
        "but not enough node entries",
        "allocated for this job are already filled",
    ),
    example="There are not enough slots available in the system to satisfy the 8 slots",
)
HOROVOD_SLOTS = _refusal(
    name="starters: horovod-slots",
    pattern=r"Requested more processes \((?P<wanted>\d+)\) than there are available slots "
    r"\((?P<slots>\d+)\)",
    anchors=("than there are available slots",),
    example="ValueError: Requested more processes (8) than there are available slots (4)",
)
MAPPING = _refusal(
    name="starters: mapping",
    pattern=r"(?P<what>Your job failed to map\b"
    r"|There are no allocated resources for the application"
    r"|There are no available nodes allocated to this job"
    r"|Some of the requested hosts are not included in the current allocation"
    r"|Your job has requested a conflicting number of processes"
    r"|No nodes are available for this job"
    r"|result in binding more)",
    anchors=(
        "Your job failed to map",
        "There are no allocated resources for",
        "There are no available nodes allocated",
        "requested hosts are not included in the",
        "has requested a conflicting number of",
        "No nodes are available for this job",
        "result in binding more",
    ),
    example="Your job failed to map. Either no mapper was available, or none",
)
NO_PMI = _refusal(
    name="starters: pmi",
    pattern=r"appears to have been direct launched using \"srun\"",
    anchors=("appears to have been direct launched",),
    example='The application appears to have been direct launched using "srun",',
)
AS_ROOT = _refusal(
    name="starters: as-root",
    pattern=r"(?P<program>mpirun|mpiexec|orterun|prterun|prun) has detected an attempt to run as "
    r"root",
    anchors=("has detected an attempt to run as root",),
    example="mpirun has detected an attempt to run as root.",
)
NO_PROGRAM = _refusal(
    name="starters: no-program",
    pattern=r"(?<![\w./-])(?P<what>[\w./-]{0,120}\b(?:orted|prted)): (?:command not found"
    r"|No such file or directory)"
    r"|(?P<mpirun>was unable to find the specified executable file"
    r"|could not access or execute an executable)"
    r"|slurmstepd: error: execve\(\): (?P<program>[^:\n]{1,120}): No such file or directory"
    r"|execvp error on file (?P<hydra>\S{1,120}) \(No such file"
    r"|(?:^|[\s/])(?P<starter>torchrun|deepspeed|accelerate|horovodrun|mpirun|mpiexec|srun): "
    r"(?:command )?not found"
    r"|No module named '?(?P<module>torch\.distributed\.(?:run|launch))"
    r"|finding module specification for '(?P<spec>torch\.distributed\.(?:run|launch))'"
    r"|launcher '(?P<pdsh>\w{1,20})' not installed",
    anchors=(
        *(f"{name}: command not found" for name in _STARTERS),
        *(f"{name}: not found" for name in _STARTERS),
        *("No module named torch.distributed.", "No module named 'torch.distributed."),
        *("module specification for 'torch.dist", "' not installed"),
        "orted: command not found",
        "prted: command not found",
        "orted: No such file or directory",
        "prted: No such file or directory",
        "unable to find the specified executable",
        "could not access or execute an",
        "slurmstepd: error: execve():",
        "execvp error on file",
    ),
    example="bash: orted: command not found",
)
NO_INIT = _refusal(
    name="starters: no-init",
    pattern=r"An error occurred in MPI_Init|It looks like MPI_INIT failed for some reason"
    r"|(?:PMIX|OPAL) ERROR: .{1,80} in file \S{1,80}",
    anchors=(
        *("error occurred in MPI_Init", "MPI_INIT failed for some reason"),
        *("OPAL ERROR: ", "PMIX ERROR: "),
    ),
    example="*** An error occurred in MPI_Init_thread",
    role=Role.CASCADE,
)
NO_DAEMON = _refusal(
    name="starters: no-daemon",
    pattern=r"(?:ORTE|PRTE) was unable to reliably start one or more daemons"
    r"|(?:ORTE|PRTE) does not know how to route a message to the specified daemon",
    anchors=("reliably start one or more daemons", "how to route a message to the specified"),
    example="ORTE was unable to reliably start one or more daemons.",
    # What stopped them is above it, where ssh or the shell could say it.
    role=Role.CASCADE,
)

# --- ssh -----------------------------------------------------------------------------------------

NO_LOGIN = _refusal(
    name="starters: no-login",
    pattern=r"host=(?P<host>[^\s,]{1,120}) was not reachable via ssh"
    r"|ssh not successful for host (?P<horovod>[^\s:]{1,120})"
    r"|could not connect to some hosts via ssh"
    r"|ssh: connect to host (?P<here>localhost|127\.[\d.]{1,12}|::1) port \d+: Connection refused"
    r"|\bssh (?:-\S{1,60} (?:\S{1,60}=\S{1,60} )?){0,6}(?P<asked>[\w.@-]{1,120}) hostname(?: -I)?'"
    r"\]?'? returned non-zero exit status 255",
    anchors=(
        "was not reachable via ssh",
        "ssh not successful for host",
        "connect to some hosts via ssh",
        "ssh: connect to host ",
        "returned non-zero exit status 255",
    ),
    example="RuntimeError: Using hostfile at /job/hostfile but host=worker-1 was not reachable via "
    "ssh. If you are running with a single node please remove /job/hostfile or setup passwordless "
    "ssh.",
)

# --- Slurm ---------------------------------------------------------------------------------------

SLURM = _refusal(
    name="starters: slurm",
    pattern=r"(?P<what>More processors requested than permitted"
    r"|Requested node configuration is not available"
    r"|Requested nodes not in this partition"
    r"|(?:Node|Task|CPU) count specification invalid"
    r"|Task distribution specification invalid"
    r"|Invalid generic resource \(gres\) specification"
    r"|Invalid (?:partition name|node name) specified"
    r"|Invalid account or account/partition combination specified"
    r"|Invalid (?:qos|feature|job array|constraint) specification"
    r"|Invalid MPI plugin name"
    r"|Invalid Trackable RESource \(TRES\) specification"
    r"|Memory required by task is not available"
    r"|Memory specification can not be satisfied"
    r"|Requested time limit is invalid"
    r"|Job violates accounting/QOS policy"
    r"|User's group not permitted to use this partition"
    r"|No partition specified or system default partition)"
    r"|(?:srun|sbatch|salloc): fatal: (?P<fatal>[^\n]{5,160})",
    anchors=(
        *("srun: fatal: ", "sbatch: fatal: ", "salloc: fatal: "),
        "More processors requested than",
        "Requested node configuration is not",
        "Requested nodes not in this partition",
        "count specification invalid",
        "Task distribution specification invalid",
        "Invalid generic resource (gres)",
        "Invalid partition name specified",
        "Invalid node name specified",
        "Invalid account or account/partition",
        "Invalid qos specification",
        "Invalid feature specification",
        "Invalid job array specification",
        "Invalid constraint specification",
        "Invalid MPI plugin name",
        "Invalid Trackable RESource",
        "Memory required by task is not",
        "Memory specification can not be",
        "Requested time limit is invalid",
        "violates accounting/QOS policy",
        "group not permitted to use this partition",
        "No partition specified or system default",
    ),
    example="srun: error: Unable to create step for job 4711: More processors requested than "
    "permitted",
)
SLURM_OTHER = _refusal(
    name="starters: slurm-other",
    # Without those that pass by themselves, or report Slurm's own trouble.
    pattern=r"(?:srun|sbatch|salloc): error: (?:[Uu]nable to (?:create (?:job )?step|allocate "
    r"resources)|Batch job submission failed)[^:\n]{0,60}: (?P<what>(?!Unable to contact|Job/step "
    r"already|Requested nodes are busy|Requested partition configuration|Socket timed|Connection "
    r"|Zero Bytes|Job has |Rate limit|Unspecified error|Expired |Required node not available"
    r"|Invalid job id|Job is )[^\n]{3,120})"
    r"|srun: [Ww]arning: (?P<fewer>can't run \d+ processes on \d+ nodes)",
    anchors=(
        "can't run ",
        "nable to create step",
        "nable to create job step",
        "nable to allocate resources",
        "Batch job submission failed",
    ),
    example="sbatch: error: Batch job submission failed: Requested reservation is invalid",
)
SLURM_WAITS = _refusal(
    name="starters: slurm-waits",
    pattern=r"step creation (?:temporarily|still) disabled, retrying \((?P<what>[^)\n]{1,80})\)",
    anchors=("step creation temporarily disabled", "step creation still disabled"),
    example="srun: Job 4711 step creation temporarily disabled, retrying (Requested nodes are "
    "busy)",
)

# --- Ray, Kubernetes -----------------------------------------------------------------------------

RESOURCES = _refusal(
    name="starters: resources",
    pattern=r"(?P<what>Total available GPUs [\d.]{1,8} is less than total desired GPUs [\d.]{1,8}"
    r"|number of required \w{2,10} exceeds the total number of available \w{2,10}"
    r"|No available node types can fulfill resource requests? [^\n]{1,80}"
    r"|(?<!\d)\d{1,7}/\d{1,7} nodes are available: [^\n]{0,200}?\d+ Insufficient [\w./-]{2,60}"
    r"|requested number of devices unavailable for [\w./-]{2,60}\. Requested: \d+, Available: \d+"
    r"|Unable to proceed, no GPU resources available)",
    anchors=(
        "is less than total desired GPUs",
        "exceeds the total number of available",
        "No available node types can fulfill",
        " nodes are available: ",
        "requested number of devices unavailable",
        "proceed, no GPU resources available",
    ),
    example="ValueError: Total available GPUs 0 is less than total desired GPUs 8",
)

IMAGE = _refusal(
    name="starters: image",
    pattern=r"Failed to pull image \"(?P<image>[^\"\s]{1,200})\"(?:: (?P<why>[^\n]{1,160}))?"
    r"|Back-off pulling image \"(?P<again>[^\"\s]{1,200})\"",
    anchors=("Failed to pull image ", "Back-off pulling image "),
    example='Failed to pull image "registry/train:v9": rpc error: code = NotFound desc = failed to '
    "pull and unpack image",
)
TWO_AGENTS = _refusal(
    name="starters: two-agents",
    pattern=r"multiple participants on the same node \((?P<host>[\w.:\-]{1,100})\)"
    r"|Invalid Slurm launcher layout for (?P<program>ft_launcher)",
    anchors=("multiple participants on the same node", "Invalid Slurm launcher layout"),
    example="[n1_222_0] [Step 2] Detected multiple participants on the same node (n1) in round 0. "
    "This indicates more than one ft_launcher per node (misconfiguration).",
)

ALL: tuple[LogPattern, ...] = (
    SLOTS,
    HOROVOD_SLOTS,
    MAPPING,
    NO_PMI,
    AS_ROOT,
    NO_PROGRAM,
    NO_INIT,
    NO_DAEMON,
    NO_LOGIN,
    SLURM,
    SLURM_OTHER,
    SLURM_WAITS,
    RESOURCES,
    IMAGE,
    TWO_AGENTS,
)
