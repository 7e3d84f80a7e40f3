"""How launchers, trainers, shells, Kubernetes and clouds report an end, by their sources."""

from __future__ import annotations

import functools
from typing import NamedTuple

import pytest

from holdfast import catalogue
from holdfast.explain.diagnose import diagnose
from holdfast.explain.gather import gather_bytes
from holdfast.findings import Diagnosis


class Said(NamedTuple):
    """A log, and what follows from it."""

    name: str
    log: str
    slug: str
    """'' where nothing does"""
    rank: int | None = None
    what: str = ""
    """a part of the reason, or of what the culprit is"""


SHELLS = [
    Said("bash-killed", "run.sh: line 12:  1011 Killed                  python train.py",
         "rank-killed"),
    Said("dash", "step 3\nSegmentation fault\ndone", "native-crash"),
    Said("zsh-killed", "zsh: killed     python train.py", "rank-killed"),
    Said("zsh-segv", "zsh: segmentation fault (core dumped)  python train.py", "native-crash"),
    Said("zsh-abort", "zsh: abort (core dumped)  python train.py", ""),
    Said("zsh-ill", "zsh: illegal hardware instruction  python train.py", "native-crash"),
    Said("zsh-job", "[1]  + killed     python train.py", "rank-killed"),
    Said("zsh-pid", "[1]  + 4711 bus error  python train.py", "shm-too-small"),
    Said("fish-killed", "fish: Job 1, 'python train.py' terminated by signal SIGKILL (Forced quit)",
         "rank-killed"),
    Said("fish-segv", "fish: Process 31970, 'python' from job 1, 'python t.py | tee log' "
         "terminated "
         "by signal SIGSEGV (Address boundary error)", "native-crash"),
    Said("ksh", "run.ksh: line 3: 30474: Memory fault", "native-crash"),
    Said("bash-job", "[1]+  Killed                  python train.py", "rank-killed"),
    Said("tcsh", "[1]  + Killed                        python train.py", "rank-killed"),
]  # fmt: skip

SYSTEMD = [
    Said("unit-oom", "Nov 16 10:00:00 n1 systemd[1]: train.service: Failed with result 'oom-kill'.",
         "host-oom"),
    Said("coredump", "Nov 16 10:00:00 n1 systemd-coredump[2222]: Process 1011 (python) of "
         "user 1000 "
         "dumped core.\n\nModule libnccl.so.2 without build-id.\nStack trace of thread 1011:\n"
         "#0  0x00007f1c2a n/a (libnccl.so.2 + 0x5a00)", "native-crash", None, "libnccl"),
    Said("coredump-256", "Nov 16 10:00:00 n1 systemd-coredump[2222]: Process 1011 (python3.12) of "
         "user 0 terminated abnormally with signal 11/SEGV, processing...", "native-crash"),
    Said("coredumpctl-list", "TIME                          PID  UID  GID SIG     COREFILE EXE\n"
         "Mon 2026-11-16 10:00:00 UTC  1011 1000 1000 SIGSEGV present  /usr/bin/python3.12  1.2G",
         "native-crash"),
    Said("coredumpctl-info", "           PID: 1011 (python)\n           UID: 1000 (me)\n"
         "        Signal: 7 (BUS)\n     Timestamp: Mon 2026-11-16 10:00:00 UTC (3h ago)\n"
         "  Command Line: python train.py\n    Executable: /usr/bin/python3.12\n"
         "       Message: Process 1011 (python) of user 1000 dumped core.", "native-crash"),
    Said("abrt", "Nov 16 10:00:00 n1 abrt-hook-ccpp[222]: Process 1011 (python3.12) of user 1000 "
         "killed by SIGSEGV - dumping core", "native-crash"),
]  # fmt: skip

SLURM = [
    Said("unkillable", "slurmstepd: error: *** STEP 123.0 STEPD TERMINATED ON n7 AT "
         "2026-11-16T10:00:00 DUE TO JOB NOT ENDING WITH SIGNALS ***", "driver-hang", None, "n7"),
    Said("after-limit", "slurmstepd: error: *** JOB 1 ON n7 CANCELLED AT 2026-11-16T10:00:00 DUE "
         "TO TIME LIMIT ***\nslurmstepd: error: *** JOB 1 STEPD TERMINATED ON n7 AT "
         "2026-11-16T10:01:00 DUE TO JOB NOT ENDING WITH SIGNALS ***", "preempted"),
    Said("controller", "[2026-11-16T10:00:00.000] error: Nodes n7 not responding, setting DOWN",
         "node-lost", None, "n7"),
]  # fmt: skip

KUBERNETES = [
    Said("oomkilled", "    Last State:     Terminated\n      Reason:       OOMKilled\n"
         "      Exit Code:    137\n", "host-oom"),
    Said("evicted-memory", "  Warning  Evicted    3m    kubelet            The node was low on "
         "resource: memory. Threshold quantity: 100Mi, available: 80Mi. Container main was using "
         "60Gi, request is 0, has larger consumption of memory.", "host-oom"),
    Said("evicted-disk", "  Warning  Evicted    3m    kubelet            The node was low on "
         "resource: ephemeral-storage. Threshold quantity: 10Gi, available: 8Gi.", "disk-full"),
    Said("ephemeral-limit", "Message: Pod ephemeral local storage usage exceeds the total limit of "
         "containers 10Gi. ", "disk-full"),
    Said("emptydir-shm", 'Message:          Usage of EmptyDir volume "dshm" exceeds the limit '
         '"64Mi". ', "shm-too-small"),
    Said("emptydir-data", 'Message:          Usage of EmptyDir volume "scratch" exceeds the limit '
         '"10Gi". ', "disk-full"),
    Said("not-ready", "  Warning  NodeNotReady  92s  node-controller  Node is not ready",
         "node-lost"),
    Said("node-status", 'I1116 10:00:00.000000       1 event.go:307] "Event occurred" object="n7" '
         'kind="Node" type="Normal" reason="NodeNotReady" message="Node n7 status is now: '
         'NodeNotReady"', "node-lost", None, "n7"),
    Said("get-nodes", "NAME   STATUS     ROLES    AGE   VERSION\nn1     Ready      <none>   4d   "
         "v1.36.1\nn7     NotReady   <none>   4d   v1.36.1", "node-lost", None, "n7"),
    Said("taint", "  Normal  TaintManagerEviction  2m  taint-eviction-controller  Marking for "
         "deletion Pod default/train-worker-3", "node-lost"),
    Said("preempted", "  Normal  Preempted  10s  default-scheduler  Preempted by pod 4f2b on node "
         "n7", "preempted"),
    Said("disruption", "  Type:    DisruptionTarget\n  Reason:  PreemptionByScheduler\n  Message: "
         "default-scheduler: preempting to accommodate a higher priority pod", "preempted"),
    Said("liveness", "  Normal   Killing    20s  kubelet  Container main failed liveness probe, "
         "will be restarted", "rank-killed", None, "liveness"),
    Said("unschedulable", "  Warning  FailedScheduling  5m  default-scheduler  0/5 nodes are "
         "available: 5 Insufficient nvidia.com/gpu. preemption: 0/5 nodes are available: 5 No "
         "preemption victims found for incoming pod.", "launcher-config"),
    Said("devices", "Message: Allocate failed due to requested number of devices unavailable for "
         "nvidia.com/gpu. Requested: 8, Available: 7, which is unexpected", "launcher-config"),
    Said("image", '  Warning  Failed     3m    kubelet            Failed to pull image '
         '"reg/train:v9": rpc error: code = NotFound desc = failed to pull and unpack image',
         "launcher-config", None, "reg/train:v9"),
    Said("segv", "    State:          Terminated\n      Reason:       Error\n      Exit Code:    "
         "139\n", "native-crash"),
    Said("jobset", "jobset failed due to reaching max number of restarts", "restart-loop"),
    Said("deadline", "  Warning  DeadlineExceeded  1m  job-controller  Job was active longer than "
         "specified deadline", "preempted"),
]  # fmt: skip

CLOUDS = [
    Said("aws-nth", '{"level":"info","event_type":"SPOT_ITN","event":{"Description":"Spot ITN '
         'received. Instance will be interrupted at 2026-11-16T10:02:00Z \\n"},"time":'
         '"2026-11-16T10:00:00Z","message":"Adding new event to the event store"}', "preempted"),
    Said("aws-imds", '{"action": "terminate", "time": "2026-11-16T10:02:00Z"}', "preempted"),
    Said("aws-eventbridge", '"detail-type": "EC2 Spot Instance Interruption Warning",',
         "preempted"),
    Said("gce", "compute.instances.preempted  Instance was preempted.", "preempted"),
    Said("gce-host-error", "compute.instances.hostError  Instance terminated by Compute Engine.",
         "node-lost"),
    Said("gce-maintenance", "Instance terminated during maintenance: "
         "compute.instances.terminateOnHostMaintenance", "preempted"),
    Said("azure", '{"DocumentIncarnation":2,"Events":[{"EventId":"1","EventStatus":"Scheduled",'
         '"EventType":"Preempt","ResourceType":"VirtualMachine","Resources":["vm_0"]}]}',
         "preempted"),
    Said("skypilot", "I 11-16 10:00:00 controller.py:388] Cluster is preempted or failed (status: "
         "STOPPED). Recovering...", "preempted"),
    Said("karpenter", '{"level":"INFO","time":"2026-11-16T10:00:00Z","logger":"controller",'
         '"message":"initiating delete from interruption message","messageKind":'
         '"spot_interrupted","Node":{"name":"n7"}}', "preempted"),
    Said("rebalance", '{"level":"info","event":{"Description":"Rebalance recommendation received. '
         'Instance will be cordoned at 2026-11-16T10:00:00Z \\n"},"message":"Adding new event to '
         'the event store","time":"2026-11-16T10:00:00Z"}', ""),
]  # fmt: skip

NVRX = "[2026-11-16 10:00:00,123] [WARNING] [RankMonServer4242@n1:{rank}] "
RAY = "(TrainController pid=40) "
FT = "ERROR:torchft.manager:"
TRACE = 'Traceback (most recent call last):\n  File "t.py", line 3, in f\nValueError: bad'
TRAINERS = [
    Said("nvrx-heartbeat", NVRX.format(rank=3) + "[Cycle 0] Did not get subsequent heartbeat. "
         "Waited 600.00 seconds.", "rank-stuck", None, "heartbeat"),
    Said("nvrx-section", NVRX.format(rank=3) + "[Cycle 2] Section 'checkpointing' has been "
         "open for "
         "602.11 seconds. Timeout is 600.00 seconds.", "rank-stuck", None, "checkpointing"),
    Said("nvrx-out", NVRX.format(rank=0) + "[Cycle 0] Was out of section for 61.00 seconds. "
         "Timeout "
         "is 60.00 seconds.", "rank-stuck"),
    Said("nvrx-first", NVRX.format(rank=1) + "[Cycle 0] Did not get initial heartbeat. Waited "
         "3600.00 "
         "seconds.", "rank-stuck"),
    Said("nvrx-gpu", "2026-11-16 10:00:00,123 [WARNING] [n1] GPU 3: Requires a node reboot to "
         "recover. Reboot the system.", "gpu-hardware", None, "GPU 3"),
    Said("nvrx-nic", "2026-11-16 10:00:00,123 [WARNING] [n1] GPU 3 NIC/IB mlx5_3 link down counter "
         "has been incremented: 4 -> 5 ", "ib-misconfig"),
    Said("nvrx-two", "[n1_222_0] [Step 2] Detected multiple participants on the same node (n1) in "
         "round 0. This indicates more than one ft_launcher per node (misconfiguration). "
         "Permanently closing the rendezvous.", "launcher-config"),
    Said("nvrx-progress", "[default] Progress tracker detected no progress across restarts. "
         "No more "
         "restarts will be attempted.", "restart-loop"),
    Said("torchft-quorum", "2026-11-16T10:00:00.123+00:00 INFO [torchft::lighthouse] Quorum "
         "status: "
         "New quorum not ready, only have 1 participants, need min_replicas 2 [1/1 participants "
         "healthy][1 heartbeating][shrink_only=false]", "ranks-missing"),
    Said("torchft-lighthouse", "RuntimeError: status: Internal, message: \"Failed to connect to "
         "lighthouse. error: status: Unavailable\", details: []", "master-not-listening"),
    Said("torchft-kill", "2026-11-16T10:00:00Z WARN [torchft::manager] got kill request: killed "
         "from dashboard", "rank-killed", None, "kill request"),
    Said("ray-collective", "ray.train.v2._internal.exceptions.BroadcastCollectiveTimeoutError: The "
         "collective operation timed out after 1800.00 seconds. The following ranks have not "
         "joined "
         "the collective operation: [2]", "rank-stuck", 2),
    Said("ray-health", "ray.train.v2._internal.exceptions.WorkerHealthCheckTimeoutError: A worker "
         "health check has been hanging for 600.12 seconds. Marking the worker as dead.",
         "rank-stuck"),
    Said("ray-preempted", "ray.train.v2.api.exceptions.PreemptionError: Training was "
         "interrupted by "
         "node preemption (preempted_ranks=[2, 3], drain_timed_out=False).", "preempted"),
    Said("ray-startup", "The worker group startup timed out after 60.0 seconds waiting for 8 "
         "workers. Potential causes include: (1) temporary insufficient cluster resources",
         "ranks-missing"),
    Said("ray-oom", "ray.exceptions.OutOfMemoryError: Task was killed due to the node running low "
         "on memory.", "host-oom"),
    Said("ray-snippet", "ray.train.v2.api.exceptions.WorkerGroupError: Training failed due to "
         "worker "
         "errors:\n[Rank 2 Error Snippet]:\nTraceback (most recent call last):\n  File \"t.py\", "
         "line 3, in train\nValueError: boom", "python-exception", 2, "boom"),
    Said("ray-worker", RAY + "- (ip=192.0.2.7, pid=4103) world_rank=2, local_rank=2, node_rank=0\n"
         "(raylet) A worker died or was killed while executing a task by an unexpected system "
         "error. Worker PID: 4103 Worker exit type: SYSTEM_ERROR Worker exit detail: Worker "
         "unexpectedly exits", "rank-killed", 2),
    Said("ray-prefixed", f"{RAY}[Rank 2 Error Snippet]:\n{RAY}" + TRACE.replace("\n", f"\n{RAY}"),
         "python-exception", 2),
    Said("torchft-survived", f"{FT}[r0/0 - step 11] got exception in future -- skipping remaining: "
         f"x\n{TRACE}\n{FT}[r0/0 - step 12] should_commit=True", ""),
    Said("composer-block", "ERROR:composer.cli.launcher:Rank 3 crashed with exit code 1.\n"
         f"----------Begin global rank 3 STDERR----------\n{TRACE}\n"
         "----------End global rank 3 STDERR----------", "python-exception", 3,
         "raised ValueError: bad in f()"),
    Said("spot-and-term", "Spot ITN received. Instance will be interrupted at 2026-11-16T10:02:00Z"
         "\nW1116 10:02:00.456000 4711 torch/distributed/elastic/agent/server/api.py:753] Received "
         "Signals.SIGTERM death signal, shutting down workers", "preempted"),
    Said("lightning-child", "[rank: 2] Child process with PID 1011 terminated with code -9. "
         "Forcefully terminating all other processes to avoid zombies 🧟", "rank-killed", 2),
    Said("lightning-segv", "[rank: 1] Child process with PID 1011 terminated with code -11. "
         "Forcefully terminating all other processes to avoid zombies 🧟", "native-crash", 1),
    Said("lightning-term", "[rank: 0] Received SIGTERM: 15\nBypassing SIGTERM: 15",
         "external-sigterm"),
    Said("composer", "ERROR:composer.cli.launcher:Rank 3 crashed with exit code -9.\nGlobal rank 3 "
         "(PID 1011) exited with code -9", "rank-killed", 3),
    Said("composer-exit", "ERROR:composer.cli.launcher:Global rank 5 (PID 1011) exited with code "
         "-11", "native-crash", 5),
    Said("torchfrtrace", "Not all ranks joining collective, sequence number: 11\ngroup info: "
         "0:default_pg\ncollective: nccl:all_reduce\nmissing ranks: {2}\nworld size: 4\n"
         "expected ranks: {0, 1, 2, 3}", "rank-stuck", 2),
    Said("torchfrtrace-size", "Collective sequence number: 11 has errors\nerror msg: Culprit rank "
         "2; Error type: SIZE_OR_SYNTAX_MISMATCH, Expected input sizes: '[[8]]' does not match "
         "found input sizes: '[[17]]'", "collective-mismatch", 2),
    Said("pytorchjob", "PyTorchJob train is failed because 1 Worker replica(s) failed.", ""),
]  # fmt: skip

HEALTHY = {
    "ray": f"{RAY}- (ip=192.0.2.7, pid=41) world_rank=0, local_rank=0, node_rank=0\n{RAY}[State "
    "Transition] RUNNING -> FINISHED.",
    "events": "3m  Normal   Killing    pod/web-0  Stopping container web\n3m  Normal   NodeReady  "
    "node/n7    Node n7 status is now: NodeReady\n3m  Warning  Unhealthy  pod/web-1  Readiness "
    'probe failed: Get "http://192.0.2.1/": context deadline exceeded',
    "nodes": "n1     Ready    <none>   4d    v1.36.1\nn7     Ready,SchedulingDisabled   4d",
    "records": '{"level":"error","msg":"request failed","status":500,"error":"connection refused '
    'by upstream"}\n{"action": "stop", "user": "me", "time": "2026-11-16T10:00:00Z"}',
    "shells": "zsh: command not found: nvidia-smi\n[1]  + 1234 done       sleep 1\nfish: Unknown "
    "command: foo",
    "other programs": "Nov 16 10:00:00 n1 systemd[1]: nginx.service: Main process exited, "
    "code=killed, status=9/KILL\nNov 16 10:00:00 n1 systemd-coredump[22]: Process 1011 "
    "(gnome-shell) of user 1000 dumped core.",
    "torchft": "2026-11-16T10:00:00.1+00:00 INFO [torchft::lighthouse] Quorum status: New quorum "
    "not ready, only have 1 participants, need min_replicas 2\n2026-11-16T10:00:05.1+00:00 INFO "
    "[torchft::lighthouse] Quorum status: Valid quorum found [2/2 participants healthy]",
    "nvrx": "2026-11-16 11:00:00,123 [INFO] [n1] [workload:0(0) infra:0(0)] launcher.py:672 "
    "[default] worker group successfully finished.",
}


@pytest.mark.parametrize("log", HEALTHY.values(), ids=HEALTHY)
def test_what_is_no_failure_of_a_job_gives_nothing(log: str) -> None:
    report = diagnose(gather_bytes({"job.log": log.encode()}), _faults())  # type: ignore[arg-type]
    assert (report.diagnoses, report.failed) == ((), False)


@functools.cache
def _faults() -> tuple[object, ...]:
    return tuple(entry.fault for entry in catalogue.entries())


def explained(log: str) -> tuple[Diagnosis, ...]:
    found = gather_bytes({"job.log": log.encode()})
    return diagnose(found, _faults()).diagnoses  # type: ignore[arg-type]


@pytest.mark.parametrize(
    "said", [*SHELLS, *SYSTEMD, *SLURM, *KUBERNETES, *CLOUDS, *TRAINERS], ids=lambda said: said.name
)
def test_what_a_line_means(said: Said) -> None:
    answers = explained(said.log)
    assert (answers[0].slug if answers else "") == said.slug
    if said.rank is not None:
        assert answers[0].culprit is not None
        assert answers[0].culprit.rank == said.rank
    if said.what:
        culprit = answers[0].culprit
        assert said.what in f"{answers[0].reason} {culprit and (culprit.what, culprit.host)}"
