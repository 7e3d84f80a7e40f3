"""What launchers and schedulers say of the ends they saw.

They see from outside, and late: a code is a fact, 'first' is only the first that one agent noticed.
What they did themselves afterwards (SIGTERM to the rest) is teardown and never blamed.
"""

from __future__ import annotations

import functools

from holdfast.analysis.logs.pattern import LogPattern, Role
from holdfast.analysis.logs.patterns import shells, trainers

_saw = functools.partial(LogPattern, role=Role.CONFIRMATION)
_swept = functools.partial(LogPattern, role=Role.TEARDOWN)

# --- torchrun ------------------------------------------------------------------------------------

ELASTIC_FAILED = _saw(
    name="launchers: elastic-failed",
    pattern=r"failed \(exitcode: (?P<code>-?\d+)\)\s+local_rank: (?P<local_rank>\d+) "
    r"\(pid: (?P<pid>\d+)\)",
    anchors=("failed (exitcode:",),
    example="E1115 01:02:03.456000 4711 torch/distributed/elastic/multiprocessing/api.py:874] "
    "failed (exitcode: -9) local_rank: 2 (pid: 1011) of binary: /opt/venv/bin/python",
)
ROOT_CAUSE = _saw(
    name="launchers: elastic-root",
    # torch 1.9 and 1.10 put the root first, and the others below it.
    pattern=r"(?P<root>Root Cause)(?: \(first observed failure\))?:|(?P<others>Other Failures):",
    anchors=("Root Cause (first observed failure)", "Root Cause:", "Other Failures:"),
    example="Root Cause (first observed failure):",
)
ROW_HOST = _saw(
    name="launchers: elastic-row-host",
    pattern=r"^\s*host {6}: (?P<host>\S+)",
    anchors=("host      : ",),
    example="  host      : node7.cluster",
)
ROW_RANK = _saw(
    name="launchers: elastic-row-rank",
    pattern=r"^\s*rank *: (?P<rank>\d+) \(local_rank: (?P<local_rank>\d+)\)",
    anchors=(" (local_rank: ",),
    example="  rank      : 2 (local_rank: 2)",
)
ROW_CODE = _saw(
    name="launchers: elastic-row-code",
    pattern=r"^\s*exitcode *: (?P<code>-?\d+) \(pid: (?P<pid>\d+)\)",
    anchors=("exitcode  : ", "exitcode: "),
    example="  exitcode  : -9 (pid: 1011)",
)
ROW_TRACEBACK = _saw(
    name="launchers: elastic-row-traceback",
    pattern=r"^\s*traceback : (?P<message>.*)",
    anchors=("traceback : ",),
    example="  traceback : Signal 9 (SIGKILL) received by PID 1011",
)
SIGNAL_RECEIVED = _saw(
    name="launchers: signal-received",
    pattern=r"Signal (?P<signal>\d+) \((?P<name>SIG\w+)\) received by PID (?P<pid>\d+)",
    anchors=(") received by PID ",),
    example="  traceback : Signal 9 (SIGKILL) received by PID 1011",
)
CLOSING = _swept(
    name="launchers: closing",
    pattern=r"(?:Sending process|Closing process) (?P<pid>\d+) (?:closing|via) signal "
    r"(?P<name>\w+)|Sending SIGTERM to (?:all |the )?(?P<others>process|worker|subprocess)\w*",
    anchors=("Sending process ", "Closing process ", "Sending SIGTERM to "),
    example="W1115 01:02:03.456000 4711 torch/distributed/elastic/multiprocessing/api.py:900] "
    "Sending process 1009 closing signal SIGTERM",
)
FORCED = _swept(
    name="launchers: forced",
    pattern=r"Unable to shutdown process (?P<pid>\d+) via (?P<asked>\S+), forcefully exiting",
    anchors=("Unable to shutdown process",),
    example="W1115 01:02:03.456000 4711 torch/distributed/elastic/multiprocessing/api.py:919] "
    "Unable to shutdown process 1009 via Signals.SIGTERM, forcefully exiting via Signals.SIGKILL",
)
DEATH_SIGNAL = _saw(
    name="launchers: death-signal",
    pattern=r"Received (?:Signals\.)?(?P<signal>\d+|SIG\w+) death signal, shutting down"
    r"|SignalException: Process (?P<pid>\d+) got signal: (?P<got>\d+|SIG\w+)",
    anchors=("death signal, shutting down", "got signal: "),
    example="W1115 01:02:03.456000 4711 torch/distributed/elastic/agent/server/api.py:688] "
    "Received 1 death signal, shutting down workers",
)

# --- other launchers -----------------------------------------------------------------------------

DEEPSPEED_KILLING = _swept(
    name="launchers: deepspeed-killing",
    pattern=r"\bKilling subprocess (?P<pid>\d+)",
    anchors=("Killing subprocess ",),
    example="[2026-03-02 20:28:05,674] [INFO] [launch.py:319:sigkill_handler] Killing subprocess "
    "1011",
)
DEEPSPEED_EXIT = _saw(
    name="launchers: deepspeed-exit",
    pattern=r"exits with return code = (?P<code>-?\d+)",
    anchors=("exits with return code = ",),
    # The command shown is the last one spawned, not the one that failed: no rank in it.
    example="[2026-03-02 20:28:05,674] [ERROR] [launch.py:325:sigkill_handler] ['/usr/bin/python', "
    "'train.py'] exits with return code = -9",
)
CALLED_PROCESS = _saw(
    name="launchers: called-process",
    pattern=r"CalledProcessError: Command .*(?:died with <Signals\.(?P<name>SIG\w+): "
    r"(?P<signal>\d+)>|returned non-zero exit status (?P<code>\d+))",
    anchors=("died with <Signals.", "returned non-zero exit status"),
    example="subprocess.CalledProcessError: Command '['/usr/bin/python', 'train.py']' died with "
    "<Signals.SIGKILL: 9>.",
)
SPAWN_ENDED = _saw(
    name="launchers: spawn-ended",
    pattern=r"process (?P<rank>\d+) terminated with (?:signal (?P<name>SIG\w+)"
    r"|exit code (?P<code>-?\d+))",
    anchors=(" terminated with signal ", " terminated with exit code "),
    example="torch.multiprocessing.spawn.ProcessExitedException: process 2 terminated with signal "
    "SIGKILL",
)
SPAWN_RAISED = _saw(
    name="launchers: spawn-raised",
    pattern=r"-- Process (?P<rank>\d+) terminated with the following error",
    anchors=(" terminated with the following error",),
    example="-- Process 2 terminated with the following error:",
)
MPI_SIGNAL = _saw(
    name="launchers: mpi-signal",
    # Who asks in public blots out pids and hosts.
    pattern=r"process rank (?P<rank>\d+) with PID (?:(?P<pid>\d+)|\S+) on node (?P<host>\S+) "
    r"exited on signal (?P<signal>\d+)",
    anchors=("exited on signal ",),
    example="mpirun noticed that process rank 2 with PID 1011 on node node7 exited on signal 9 "
    "(Killed).",
)
MPI_EXIT = _saw(
    name="launchers: mpi-exit",
    pattern=r"Process name: \[\[\d+,\d+\],(?P<rank>\d+)\]|^\s*Exit code: +(?P<code>\d+)\s*$"
    r"|MPI_ABORT was invoked on rank (?P<aborted>\d+)"
    r"|=\s+EXIT CODE: (?P<hydra>\d+)",
    anchors=("Process name: [[", "Exit code:", "MPI_ABORT was invoked", "EXIT CODE: "),
    example="  Process name: [[51823,1],2]",
)
HOROVOD_EXIT = _saw(
    name="launchers: horovod-exit",
    pattern=r"Process (?P<rank>\d+) exit with status code (?P<code>\d+)"
    r"|Process name: (?P<name>\d+)$",
    anchors=(" exit with status code ",),
    example="Process 2 exit with status code 137.",
)
HOROVOD_MISSING = _saw(
    name="launchers: horovod-missing",
    pattern=r"^\s*(?:Missing|Stalled) ranks:(?P<ranks>[\d,\s]*)"
    r"|^\s*(?P<rank>\d+): \[(?P<tensors>[^\]]+)(?:\]\s*)?$|waiting for remainder of ranks",
    anchors=(
        "Missing ranks:",
        "Stalled ranks:",
        "remainder of ranks",
        ": [allreduce.",
        ": [allgather.",
        ": [broadcast.",
        ": [alltoall.",
        ": [Distributed",
        ": [Horovod",
    ),
    example="Missing ranks:",
)

# --- Slurm, Kubernetes, Ray ----------------------------------------------------------------------

SLURM_TASK = _saw(
    name="launchers: slurm-task",
    pattern=r"(?:srun: )?error: (?P<host>[\w.\-]+): tasks? (?P<tasks>[\d,\-]+): "
    r"(?P<how>Exited with exit code (?P<code>\d+)|[A-Z][A-Za-z ()]+)",
    anchors=(": task ", ": tasks "),
    example="srun: error: node7: task 3: Exited with exit code 1",
)
SLURM_CANCELLED = _saw(
    name="launchers: slurm-cancelled",
    pattern=r"(?:STEP|JOB) (?P<job>[\d.+_]+) ?(?:ON (?P<host>\S+) )?CANCELLED AT (?P<at>\S+)"
    r"(?: DUE TO (?P<why>[A-Z][A-Z \-]*[A-Z]))?",
    anchors=(" CANCELLED AT ",),
    example="slurmstepd: error: *** STEP 123.0 ON node7 CANCELLED AT 2026-03-02T20:28:05 DUE TO "
    "TIME LIMIT ***",
)
SLURM_OOM = _saw(
    name="launchers: slurm-oom",
    pattern=r"[Dd]etected (?P<count>\d+ )?oom[_-]kill event"
    r"|Some of the step tasks have been OOM Killed|[Ee]xceeded (?:job|step) memory limit",
    anchors=("oom-kill event", "oom_kill event", "have been OOM Killed", "memory limit"),
    example="slurmstepd: error: Detected 1 oom_kill event in StepId=123.0. Some of the step tasks "
    "have been OOM Killed.",
)
SLURM_SIGNALLED = _swept(
    name="launchers: slurm-signalled",
    pattern=r"srun: Job step aborted|srun: Terminating (?:Step|job step)"
    r"|launch/slurm: _step_signal|srun: forcing job termination|sending signal (?P<signal>\d+) to",
    anchors=(
        "srun: Job step aborted",
        "srun: Terminating ",
        "_step_signal",
        "srun: forcing job termination",
        "sending signal ",
    ),
    example="srun: Job step aborted: Waiting up to 32 seconds for job step to finish.",
)
SLURM_NODE = _saw(
    name="launchers: slurm-node",
    pattern=r"[Nn]ode failure on (?P<host>[\w.\-\[\],]+)|NODE_FAIL\b|DUE TO NODE FAILURE"
    r"(?:, SEE SLURMCTLD LOG)?"
    # the controller's own log
    r"|Nodes (?P<down>[\w.\-\[\],]+) not responding, setting DOWN"
    r"|Killing JobId=\S+ on failed node (?P<failed>[\w.\-]+)",
    anchors=(
        *("ode failure on ", "NODE_FAIL", "DUE TO NODE FAILURE"),
        *(" not responding, setting DOWN", " on failed node "),
    ),
    example="srun: error: Node failure on node7",
)
POD_ENDED = _saw(
    name="launchers: pod-ended",
    pattern=r"(?P<why>OOMKilled|Evicted|ContainerStatusUnknown|NodeLost|NodeNotReady)\b"
    r"|Exit Code: +(?P<code>[1-9]\d*)|command terminated with exit code (?P<exec>\d+)"
    r"|exited with code (?P<docker>[1-9]\d*)|\"?exitCode\"?: ?(?P<json>[1-9]\d*)",
    anchors=(
        "OOMKilled",
        "Evicted",
        "ContainerStatusUnknown",
        "NodeLost",
        "NodeNotReady",
        "Exit Code:",
        "command terminated with exit code",
        "exited with code ",
        '"exitCode":',
        "exitCode:",
    ),
    example="      Reason:       OOMKilled",
)
RAY_RANK = LogPattern(
    name="launchers: ray-rank",
    # The controller's list of its workers.
    pattern=r"\(ip=(?P<host>[\w.:\-]{1,60}), pid=(?P<pid>\d{1,9})\) world_rank=(?P<rank>\d{1,7}), "
    r"local_rank=(?P<local_rank>\d{1,4})",
    anchors=(") world_rank=",),
    example="- (ip=192.0.2.7, pid=4103) world_rank=2, local_rank=2, node_rank=0",
    role=Role.CONTEXT,
)
RAY_DIED = _saw(
    name="launchers: ray-died",
    pattern=r"(?P<what>RayActorError|ActorDiedError|WorkerCrashedError|OutOfMemoryError: "
    r"Task was killed due to the node running low on memory|NodeDiedError)"
    r"|[Tt]he actor (?:is dead|died) (?:because|unexpectedly)(?P<why>.*)"
    r"|(?:Worker PID: (?P<pid>\d{1,9}) )?[Ww]orker exit type: (?P<type>\w+)",
    anchors=(
        "RayActorError",
        "ActorDiedError",
        "WorkerCrashedError",
        "NodeDiedError",
        "he actor is dead because",
        "he actor died ",
        "orker exit type: ",
        "running low on memory",
    ),
    example="ray.exceptions.ActorDiedError: The actor died unexpectedly before finishing.",
)
ALL: tuple[LogPattern, ...] = (
    ELASTIC_FAILED,
    ROOT_CAUSE,
    ROW_HOST,
    ROW_RANK,
    ROW_CODE,
    ROW_TRACEBACK,
    SIGNAL_RECEIVED,
    CLOSING,
    FORCED,
    DEATH_SIGNAL,
    DEEPSPEED_KILLING,
    DEEPSPEED_EXIT,
    CALLED_PROCESS,
    SPAWN_ENDED,
    SPAWN_RAISED,
    MPI_SIGNAL,
    MPI_EXIT,
    HOROVOD_EXIT,
    HOROVOD_MISSING,
    SLURM_TASK,
    SLURM_CANCELLED,
    SLURM_OOM,
    SLURM_SIGNALLED,
    SLURM_NODE,
    POD_ENDED,
    RAY_RANK,
    RAY_DIED,
    shells.SHELL_ENDED,
    shells.SHELL_TRANSLATED,
    *trainers.EXITS,
    trainers.TOLD_TO_STOP,
)
