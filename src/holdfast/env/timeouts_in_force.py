"""Every timeout that can end or hold this job, in the order of its life."""

from __future__ import annotations

from holdfast.analysis.variables.status import STAGES, Clock
from holdfast.env.job import Job
from holdfast.env.timeouts import launchers, schedulers, torch, transport


def clocks(job: Job) -> tuple[Clock, ...]:
    faces = (launchers, torch, transport, schedulers)
    found = [clock for face in faces for clock in face.clocks(job)]
    return tuple(sorted(found, key=lambda clock: list(STAGES).index(clock.stage)))


def silences(job: Job) -> tuple[str, ...]:
    """What is not in the list, and why."""
    said = []
    if not job.has_nccl:
        said.append("NCCL's clocks do not apply here: torch is a CPU build")
    elif job.facts.rdma_devices == ():
        said.append("RDMA's clock does not apply here: there is no RDMA device")
    if not job.launches:
        said.append(
            "torchrun's defaults are shown; with your command also what it and the script set: "
            "`holdfast env -- torchrun … train.py`"
        )
    elif not job.script:
        said.append("no Python script of the command could be read: its own timeouts are unknown")
    return tuple(said)
