"""Which GPU a rank uses, what state the driver shows it in, and what the kernel log says of it."""

from __future__ import annotations

from collections.abc import Iterable

from holdfast import text
from holdfast.analysis.machine import Unread
from holdfast.analysis.machine.pci import pci_place
from holdfast.analysis.scene import surroundings
from holdfast.analysis.scene.gpu import GpuEvent, GpuLook
from holdfast.analysis.scene.scene import RankView, Scene
from holdfast.analysis.scene.surroundings import Surroundings
from holdfast.findings import Evidence

MOST_LINES = 3
"""of the kernel log: one failure writes many"""


def gpu_of(scene: Scene, rank: int) -> GpuLook | None:
    """None where the driver was not asked, or shows this rank on no GPU or on several."""
    seen = surroundings.of_rank(scene, rank)
    return _among(scene.rank(rank), seen.gpus) if isinstance(seen.gpus, tuple) else None


def _among(view: RankView, gpus: Iterable[GpuLook]) -> GpuLook | None:
    """By what it said at its start, which also holds inside a container; else by its pid."""
    claim = view.beat.claim if view.beat else None
    if told := claim.device if claim else "":
        return next((gpu for gpu in gpus if gpu.uuid.endswith(told)), None)
    held = [gpu for gpu in gpus if view.pid in gpu.pids]
    return held[0] if len(held) == 1 else None


def events_of(scene: Scene, rank: int) -> tuple[GpuEvent, ...]:
    """Xids that name its process, or the GPU it uses."""
    seen = surroundings.of_rank(scene, rank)
    if isinstance(seen.gpu_events, Unread):
        return ()
    gpu, pid = gpu_of(scene, rank), scene.rank(rank).pid
    return tuple(
        event
        for event in seen.gpu_events
        if not event.switch and (event.pid == pid or (gpu is not None and _is_on(event, gpu)))
    )


def _is_on(event: GpuEvent, gpu: GpuLook) -> bool:
    return bool(gpu.bus_id) and pci_place(event.bus_id) == pci_place(gpu.bus_id)


def switch_events(seen: Surroundings) -> tuple[GpuEvent, ...]:
    """SXids: an NVSwitch serves all GPUs of its machine."""
    if isinstance(seen.gpu_events, Unread):
        return ()
    return tuple(event for event in seen.gpu_events if event.switch)


def evidence(scene: Scene, ranks: Iterable[int]) -> list[Evidence]:
    """What GPUs and kernel log say of these ranks, as far as it was asked."""
    found = []
    for machine in surroundings.machines(scene, ranks):
        host = machine.node or None
        for rank in machine.ranks:
            gpu = gpu_of(scene, rank)
            if gpu and (_lives(scene, rank) or gpu.lost or gpu.new_uncorrected):
                found.append(Evidence(quote=state(gpu), source="NVML", rank=rank, host=host))
            found += [
                Evidence(quote=event.line, source="kernel log", rank=rank, host=host)
                for event in events_of(scene, rank)[-MOST_LINES:]
            ]
        found += [
            Evidence(quote=event.line, source="kernel log", host=host)
            for event in switch_events(machine.seen)[-MOST_LINES:]
        ]
    return found


def _lives(scene: Scene, rank: int) -> bool:
    """After its end, load and memory of its GPU tell nothing of it."""
    return scene.rank(rank).death is None


def state(gpu: GpuLook) -> str:
    """'GPU 3: 100 % busy, 118 of 700 W, 61 of 80 GiB in use, 2 new memory errors'."""
    if gpu.lost:
        return f"GPU {gpu.index}: {gpu.lost}"
    if gpu.silent:
        return f"GPU {gpu.index}: {gpu.silent}"
    parts = [] if gpu.busy is None else [f"{gpu.busy} % busy"]
    if gpu.limit:
        parts.append(f"{gpu.power:.0f} of {gpu.limit:.0f} W")
    if gpu.memory_total:
        parts.append(f"{text.size(gpu.memory)} of {text.size(gpu.memory_total)} in use")
    if gpu.new_uncorrected:
        parts.append(f"{gpu.new_uncorrected} uncorrected memory errors since the job started")
    return f"GPU {gpu.index}: {', '.join(parts) or 'nothing told'}"
