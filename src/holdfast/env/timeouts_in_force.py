"""Every timeout that can end or hold this job, in the order of its life."""

from __future__ import annotations

from holdfast.analysis.variables.status import STAGES, Timeout
from holdfast.env.job import Job
from holdfast.env.timeouts import launchers, schedulers, torch, transport


def timeouts(job: Job) -> tuple[Timeout, ...]:
    faces = (launchers, torch, transport, schedulers)
    found = [timeout for face in faces for timeout in face.timeouts(job)]
    return tuple(sorted(found, key=lambda timeout: list(STAGES).index(timeout.stage)))


def silences(job: Job) -> tuple[str, ...]:
    """What is not in the list, and why."""
    said = []
    if not job.has_nccl:
        said.append("NCCL's timeouts do not apply here: torch is a CPU build")
    elif job.facts.rdma_devices == ():
        said.append("RDMA's timeout does not apply here: there is no RDMA device")
    if not job.launches:
        said.append(
            "torchrun's defaults are shown; with your command also what it and the script set: "
            "`holdfast env -- torchrun … train.py`"
        )
    elif not job.script:
        said.append("no Python script of the command could be read: its own timeouts are unknown")
    return tuple(said)
