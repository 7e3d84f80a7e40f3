"""`holdfast check` as a user runs it on every host of a lab, and what it said."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from holdfast.drill.lab import Host, Lab
from tests.cli.holdfast_command import HOLDFAST

PORT = 29400
# A loaded test machine must not look like one that hangs.
PATIENT = ("--deadline", "30")
# The machine below is what it is: its load, whether it is a container, who sets its clock.
SURROUNDINGS = {"container-network", "cpu-contention", "host-oom"}
OWN_CLOCK = "the clock of this machine is not synchronised"

Environments = Mapping[Host, Mapping[str, str]]


class Said(NamedTuple):
    """The coordinator's document; what was said of this machine alone is left out."""

    document: dict[str, Any]
    findings: list[dict[str, Any]]
    """errors, warnings and notes"""

    def summaries(self, slug: str) -> list[str]:
        return [finding["summary"] for finding in self.findings if finding["slug"] == slug]

    def by_host(self, slug: str) -> dict[str, str]:
        return {f["host"]: f["summary"] for f in self.findings if f["slug"] == slug}

    def slugs(self) -> set[str]:
        return {finding["slug"] for finding in self.findings}

    def told(self) -> list[str]:
        return [f"{f['host']}: {f['slug']} {f['status']}: {f['summary']}" for f in self.findings]

    def state(self, source: Host, target: Host) -> str:
        wanted = (source.name, target.name)
        path, = (p for p in self.document["paths"] if (p["from"], p["to"]) == wanted)  # fmt: skip
        return str(path["state"])


def start_check(
    lab: Lab, hosts: Sequence[Host], *options: str, nnodes: int = 0, env: Environments | None = None
) -> list[subprocess.Popen[str]]:
    """The same command on every host; they meet on the first one."""
    command = [*HOLDFAST, "check", "--json", *PATIENT, "--nnodes", str(nnodes or len(hosts)),
               "--join", f"{hosts[0].name}:{PORT}", *options]  # fmt: skip
    outer: dict[str, str | None] = {
        name: None for name in os.environ if name.startswith(("NCCL_", "GLOO_", "TORCH_", "SLURM_"))
    }
    return [lab.start(host, command, env={**outer, **(env or {}).get(host, {})}) for host in hosts]


def check(
    lab: Lab, hosts: Sequence[Host], *options: str, nnodes: int = 0, env: Environments | None = None
) -> Said:
    return finish(start_check(lab, hosts, *options, nnodes=nnodes, env=env))


def finish(processes: Sequence[subprocess.Popen[str]]) -> Said:
    answers = [process.communicate(timeout=120) for process in processes]
    assert answers[0][0], answers
    document = json.loads(answers[0][0])
    spoken = [f for f in document["findings"] if f["status"] in ("error", "warning", "note")]
    return Said(document, [finding for finding in spoken if not _of_the_machine(finding)])


def _of_the_machine(finding: Mapping[str, Any]) -> bool:
    return finding["slug"] in SURROUNDINGS or finding["summary"] == OWN_CLOCK
