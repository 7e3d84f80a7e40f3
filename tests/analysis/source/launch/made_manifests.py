"""Kubernetes manifests for tests: a workload with one container that runs one command."""

from __future__ import annotations

from holdfast.analysis.source.source import Source
from tests.analysis.source.made_sources import yaml

POD = """
      hostNetwork: {host}
      {pod}
      containers:
        - name: main
          command: [bash, -c]
          args:
            - |
              set -e
              {run}
          env: [{env}]
          resources: {{limits: {{nvidia.com/gpu: {gpus}}}}}
          volumeMounts: [{mounts}]
"""
SHM = "{mountPath: /dev/shm, name: shm}"
C10D = "--rdzv-backend=c10d --rdzv-endpoint=trainer-0.trainer:29400"


def manifest(
    head: str,
    run: str,
    *,
    host: bool = False,
    pod: str = "subdomain: trainer",
    env: str = "",
    gpus: int = 8,
    mounts: str = SHM,
    before: str = "",
) -> Source:
    """The container is line 13, the command line 18; further down by what is before."""
    text = POD.format(host=str(host).lower(), pod=pod, run=run, env=env, gpus=gpus, mounts=mounts)
    return yaml(before + head + "  template:\n    spec:" + text)


def of(kind: str, *spec: str, version: str = "batch/v1") -> str:
    padded = [*spec, "suspend: false", "paused: false", "extra: 0"][:3]
    lines = "".join(f"  {line}\n" for line in padded)
    return f"apiVersion: {version}\nkind: {kind}\nmetadata: {{name: trainer}}\nspec:\n{lines}"


def torchrun(options: str) -> str:
    return f"torchrun --nproc-per-node=8 {options} train.py"


JOB2 = of("Job", "parallelism: 2", "completions: 2", "completionMode: Indexed")
SET4 = of("StatefulSet", "replicas: 4", "serviceName: trainer", version="apps/v1")
SERVICE = """
apiVersion: v1
kind: Service
metadata: {{name: trainer}}
spec: {{clusterIP: {ip}, ports: [{{port: 23456}}]}}
---
"""
