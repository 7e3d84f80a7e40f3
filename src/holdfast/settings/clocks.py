"""Every timeout that can end or hold this job, in the order of its life."""

from __future__ import annotations

from holdfast.judged import STAGES, Clock
from holdfast.settings.clock_faces import launching, outside, torch, transport
from holdfast.settings.nouns import Job


def clocks(job: Job) -> tuple[Clock, ...]:
    faces = (launching, torch, transport, outside)
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
