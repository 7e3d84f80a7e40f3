"""Kubernetes manifests and compose files: containers that are to form one job."""

from __future__ import annotations

from holdfast.analysis.source.source import Source
from tests.analysis.source.launch.made_manifests import C10D, JOB2, SET4, manifest, of, torchrun
from tests.analysis.source.made_sources import compose, yaml
from tests.faults.table import Remark, flags, leaves, lint_table

OTHER = """
apiVersion: batch/v1
kind: Job
metadata: {name: leader}
spec:
  template:
    spec:
      containers: [{name: main, command: [torchrun, --nnodes=3, ELASTIC, train.py]}]
---
""".lstrip().replace("ELASTIC", C10D.replace(" ", ", "))
RANKS = "{{name: RANK, value: '{rank}'}}, {{name: WORLD_SIZE, value: '4'}}"


def waits(status: str, source: Source, *said: str, line: int = 18) -> Remark:
    return flags(status, source, lines=[line], saying=["torchrun waits for", *said])


test_number_of_pods = lint_table(
    "rendezvous-config",
    waits("error", manifest(JOB2, torchrun(f"--nnodes=4 {C10D}")), "4 nodes, but only 2 pods run"),
    waits("error", manifest(SET4, torchrun(f"--nnodes=8 {C10D}")), "`replicas: 8`"),
    waits("error", manifest(of("Job", "parallelism: 4", "completions: 1"),
                            torchrun(f"--nnodes=4 {C10D}")), "1 pod runs"),
    waits("warning", manifest(of("Job"), torchrun(f"--nnodes=2 {C10D}")), "by default"),
    leaves(manifest(JOB2, torchrun(f"--nnodes=2 {C10D}"))),
    leaves(manifest(JOB2, torchrun(f"--nnodes=1:4 {C10D}"))),
    leaves(manifest(JOB2, torchrun(f"--nnodes=$NODES {C10D}"))),
    leaves(manifest(JOB2, f"torchrun $OPTIONS --nnodes=4 {C10D} train.py")),
    leaves(manifest(of("Job", "parallelism: ${N}"), torchrun(f"--nnodes=4 {C10D}"))),
    leaves(manifest(of("Job", "parallelism: {{ .Values.n }}"), torchrun(f"--nnodes=4 {C10D}"))),
    leaves(manifest(JOB2, torchrun(f"--nnodes=3 {C10D}"), before=OTHER)),  # 1 + 2
    flags("warning", manifest(SET4, torchrun(f"--nnodes=2 {C10D}")), lines=[18],
          saying=["4 pods run torchrun with --nnodes=2"]),
    flags("warning", manifest(SET4, torchrun("--master-addr=trainer-0.trainer")), lines=[18],
          saying=["4 pods run torchrun without --nnodes", "a job of its own"]),
    leaves(manifest(SET4, "torchrun --standalone train.py")),  # four jobs, and meant so
    leaves(manifest(SET4, torchrun("--master-addr=trainer-0.trainer"),
                    env="{name: PET_NNODES, value: '4'}")),
)  # fmt: skip

TRAIN_JOB = """
apiVersion: trainer.kubeflow.org/v1alpha1
kind: TrainJob
spec:
  trainer:
    numNodes: NODES
    command: [torchrun, --nnodes=3, --nproc-per-node=8, train.py]
    resourcesPerNode: {limits: {nvidia.com/gpu: 4}}
"""
PARTS = """
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: t}
spec:
  POLICY: {}
  pytorchReplicaSpecs:
    Master: {template: {spec: {containers: [{command: [torchrun, --nnodes=4, t.py]}]}}}
    Worker:
      replicas: 2
      template: {spec: {containers: [{command: [torchrun, --nnodes=4, t.py]}]}}
---
apiVersion: jobset.x-k8s.io/v1alpha2
kind: JobSet
metadata: {name: js}
spec:
  replicatedJobs:
    - name: w
      replicas: 2
      template:
        spec:
          parallelism: 3
          template: {spec: {containers: [{command: [torchrun, --nnodes=9, t.py]}]}}
---
apiVersion: batch.volcano.sh/v1alpha1
kind: Job
spec:
  tasks:
    - {replicas: 1, template: {spec: {containers: [{command: [torchrun, --nnodes=2, t.py]}]}}}
    - {replicas: 1, template: {spec: {containers: [{command: [torchrun, --nnodes=2, t.py]}]}}}
"""
test_kinds_of_workloads = lint_table(
    "rendezvous-config",
    flags("error", yaml(TRAIN_JOB.replace("NODES", "2")), lines=[6],
          saying=["waits for 3 nodes, but only 2 pods run", "`numNodes: 3`"]),
    leaves(yaml(TRAIN_JOB.replace("NODES", "3"))),
    leaves(yaml(TRAIN_JOB.replace("numNodes: NODES", "env: []"))),
    flags("error", yaml(PARTS), lines=[7, 10, 22], saying=["nodes, but only", "pods run"]),
    flags("warning", yaml(PARTS.replace("POLICY", "elasticPolicy").split("---")[0]), lines=[7, 10],
          saying=["only 3 pods run"]),
)  # fmt: skip

STATIC = "--master-addr=trainer-0.trainer"
test_same_rank_in_all_pods = lint_table(
    "rendezvous-config",
    flags("error", manifest(JOB2, torchrun(f"--nnodes=2 --node-rank=0 {STATIC}")), lines=[18],
          saying=["all 2 pods of Job trainer are --node-rank 0", "JOB_COMPLETION_INDEX"]),
    flags("error", manifest(SET4, torchrun(f"--nnodes=4 --node-rank=$NODE_RANK {STATIC}"),
                            env="{name: NODE_RANK, value: '1'}"), lines=[18],
          saying=["all 4 pods", "HOSTNAME"]),
    leaves(manifest(JOB2, torchrun(f"--nnodes=2 --node-rank=$JOB_COMPLETION_INDEX {STATIC}"))),
    flags("error", manifest(SET4, "python train.py", env=RANKS.format(rank=0)), lines=[19],
          saying=["RANK=0 in all 4 pods of StatefulSet trainer"]),
    leaves(manifest(SET4, "python train.py", env=RANKS.format(rank="${INDEX}"))),
)  # fmt: skip

test_devices = lint_table(
    "launcher-config",
    flags("warning", manifest(JOB2, torchrun(f"--nnodes=2 {C10D}"), gpus=4), lines=[18],
          saying=["8 ranks per machine, but the container gets 4 GPUs"]),
    leaves(manifest(JOB2, torchrun(f"--nnodes=2 {C10D}"))),
    flags("warning", yaml(TRAIN_JOB), lines=[6], saying=["the container gets 4 GPUs"]),
)  # fmt: skip

test_shared_memory = lint_table(
    "container-flags",
    flags("note", manifest(JOB2, torchrun(f"--nnodes=2 {C10D}"), mounts=""), lines=[13],
          saying=["no volume at /dev/shm", "medium: Memory"]),
    leaves(manifest(JOB2, torchrun(f"--nnodes=2 {C10D}"))),
    leaves(manifest(JOB2, torchrun(f"--nnodes=2 {C10D}"), mounts="", pod="hostIPC: true")),
    leaves(manifest(JOB2, "sleep 1", mounts="")),
    leaves(manifest(JOB2, "torchrun --nnodes=2 --nproc-per-node=1 train.py", mounts="")),
)  # fmt: skip

# --- compose -------------------------------------------------------------------------------------

ONE = """
  {name}:
    image: img
    command: torchrun --nnodes {nodes} --node-rank {rank} --master-addr {master} train.py
    deploy: {{replicas: {replicas}}}
"""


def services(
    *ranks: str, nodes: int = 2, master: str = "node0", replicas: int = 1, more: str = ""
) -> Source:
    each = [
        ONE.format(name=f"node{number}", nodes=nodes, rank=rank, master=master, replicas=replicas)
        for number, rank in enumerate(ranks)
    ]
    return compose("services:" + f"    {more}".join([*each, ""]))


def variables(*given: str) -> Source:
    each = [f"\n  node{n}:\n    image: img\n    environment: {{{e}}}" for n, e in enumerate(given)]
    return compose("services:" + "".join(each))


JOB = "MASTER_ADDR: node0, WORLD_SIZE: 2"
test_compose = lint_table(
    "rendezvous-config",
    flags("error", services("0", nodes=2), lines=[4],
          saying=["waits for 2 nodes, but this file starts 1"]),
    flags("error", services("0", "0"), lines=[9], saying=["node0", "node1", "both --node-rank 0"]),
    flags("error", services("0", master="10.0.0.1", replicas=2), lines=[4],
          saying=["all 2 replicas of node0"]),
    flags("error", services("1", "0"), lines=[4], saying=["node0 is node 1", "node 0 is node1"]),
    leaves(services("0", "1")),
    leaves(services("$R", "$R")),
    leaves(services("0", master="10.0.0.1")),  # the others are elsewhere
    leaves(services("0", more="networks: [shared]")),
    flags("error", variables(f"{JOB}, RANK: 0", f"{JOB}, RANK: 0"), lines=[7],
          saying=["node0 and node1 are both RANK 0"]),
    flags("error", variables(f"{JOB}, RANK: 0, MASTER_PORT: 1", f"{JOB}, RANK: 1, MASTER_PORT: 2"),
          lines=[7], saying=["on port 2", "node0 on 1"]),
    leaves(variables(f"{JOB}, RANK: 0, MASTER_PORT: 1", f"{JOB}, RANK: 1, MASTER_PORT: 1")),
    leaves(variables("WORLD_SIZE: 1, RANK: 0, MASTER_ADDR: a", "WORLD_SIZE: 1, RANK: 0")),
)  # fmt: skip
