"""Is the NVLink fabric of a machine ready, which GPUs are not, and what holds it up?

The GPUs' registration and what a CUDA program meets decide. The service only explains: it may run
where it cannot be seen (outside of the container or virtual machine, in the switch trays of a
rack), and it may be active while a GPU is not registered.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import msgspec

from holdfast.analysis.machine.fabric import FabricFacts, ServiceState
from holdfast.analysis.machine.fact import CouldNotLook, Unread
from holdfast.analysis.machine.gpu import CudaFacts, CudaProbe, Gpu, GpuFabric, NvidiaFacts

NOT_READY = 802
"""CUDA_ERROR_SYSTEM_NOT_READY"""
WAITING = ("not started", "in progress")
BOOT_SECONDS = 300.0
"""so long the fabric may take to come up after the machine or its service started"""
STOPPED = ("failed", "inactive", "not installed")


class FabricState(msgspec.Struct, frozen=True, kw_only=True):
    """Which GPUs of the fabric are in which state."""

    members: tuple[Gpu, ...]
    """GPUs of the job that should take part; one that is divided by MIG uses no NVLink"""
    refused: tuple[CudaProbe, ...]
    """GPUs on which CUDA says that the system is not ready"""
    waiting: tuple[Gpu, ...]
    """their registration has not ended"""
    rejected: tuple[Gpu, ...]
    """their registration ended with an error"""
    unhealthy: tuple[Gpu, ...]
    """registered, and the driver reports a fault"""
    working: frozenset[int]
    """indices of GPUs on which CUDA starts"""
    unproven: tuple[Gpu, ...]
    """neither registered nor tried by CUDA"""

    @property
    def unregistered(self) -> tuple[Gpu, ...]:
        return (*self.waiting, *self.rejected)

    @property
    def broken(self) -> list[int]:
        """GPUs on which CUDA does not start, or will not by what the driver says."""
        refused = {index_of(probe, self.members) for probe in self.refused}
        late = {gpu.index for gpu in self.unregistered if gpu.index not in self.working}
        return sorted(refused | late)


def of_machine(nvidia: NvidiaFacts | Unread, cuda: CudaFacts | Unread) -> FabricState:
    """By what is known; what could not be read proves nothing either way."""
    gpus = () if isinstance(nvidia, Unread) else nvidia.gpus
    probes = () if isinstance(cuda, Unread) else cuda.probes
    seen = {index_of(probe, gpus) for probe in probes} or {gpu.index for gpu in gpus}
    members = tuple(g for g in gpus if g.index in seen and not g.mig and not g.unread)
    waiting = tuple(g for g in members if g.fabric and g.fabric.state in WAITING)
    rejected = tuple(g for g in members if _completed(g) and not registered(g))
    working = frozenset(index_of(probe, gpus) for probe in probes if probe.code == 0)
    return FabricState(
        members=members,
        refused=tuple(p for p in probes if p.code == NOT_READY or _hangs(p, waiting)),
        waiting=waiting,
        rejected=rejected,
        unhealthy=tuple(g for g in members if registered(g) and faults_of(g)),
        working=working,
        unproven=tuple(g for g in members if not registered(g) and g.index not in working),
    )


def _completed(gpu: Gpu) -> bool:
    return gpu.fabric is not None and gpu.fabric.state == "completed"


def registered(gpu: Gpu) -> bool:
    return gpu.fabric is not None and _completed(gpu) and gpu.fabric.status == "success"


def _hangs(probe: CudaProbe, waiting: Iterable[Gpu]) -> bool:
    """On newer racks CUDA's start does not fail: it waits for the registration."""
    return probe.timed_out and probe.step == "init" and probe.uuid in {gpu.uuid for gpu in waiting}


def index_of(probe: CudaProbe, gpus: Iterable[Gpu]) -> int:
    """The driver's number of the GPU; CUDA's own counting may leave some out."""
    return next((g.index for g in gpus if g.uuid and g.uuid == probe.uuid), probe.index)


def faults_of(gpu: Gpu) -> tuple[str, ...]:
    """What the driver says is wrong with this GPU's part of the fabric."""
    fabric = gpu.fabric
    if fabric is None:
        return ()
    return fabric.unhealthy or (
        (fabric.summary,) if fabric.summary in ("unhealthy", "limited capacity") else ()
    )


def has_fabric(fabric: FabricFacts, gpus: Iterable[Gpu]) -> bool:
    """Are there switches, here or behind the GPUs' links?"""
    return fabric.nvswitches > 0 or any(
        gpu.fabric is not None and gpu.fabric.state != "not supported" for gpu in gpus
    )


def why_there_is_none(nvidia: NvidiaFacts, fabric: FabricFacts, state: FabricState) -> str:
    """'' where GPUs of this machine should take part in a fabric."""
    if nvidia.present and nvidia.error:
        raise CouldNotLook(f"the NVIDIA driver could not be asked: {nvidia.error}")
    if not nvidia.gpus:
        return "no NVIDIA GPU on this machine"
    if not has_fabric(fabric, nvidia.gpus):
        return "no NVSwitch and no NVLink fabric on this machine"
    return "" if state.members else "every GPU is divided by MIG, or could not be read"


def mask_in_words(gpu: Gpu) -> str:
    mask = gpu.fabric.health_mask if gpu.fabric is not None else None
    return "" if mask is None else f" (health mask {mask:#x})"


def domain(gpu: Gpu) -> str:
    """The NVLink domain that reaches beyond this machine, with the GPU's clique in it; '' for
    none."""
    fabric = gpu.fabric
    return "" if fabric is None or not spans_nodes(fabric) else f"{fabric.cluster}/{fabric.clique}"


def spans_nodes(fabric: GpuFabric) -> bool:
    """All zeros is how NVML says that the fabric ends with this machine."""
    return bool(fabric.cluster.strip("0-"))


def starts_up(fabric: FabricFacts | Unread) -> bool:
    """Did the machine or the service start so lately that waiting is what to do?"""
    if isinstance(fabric, Unread) or isinstance(fabric.manager, Unread):
        return False
    manager = fabric.manager
    ages = [age for age in (fabric.boot_seconds, manager.up_seconds) if age is not None]
    return manager.state in ("active", "activating") and min(ages, default=BOOT_SECONDS) < (
        BOOT_SECONDS
    )


def versions_differ(manager: ServiceState | Unread, driver: str) -> bool:
    """The manager works with exactly its driver, to the last component."""
    return isinstance(manager, ServiceState) and bool(
        manager.version and driver and manager.version != driver
    )


def cause(fabric: FabricFacts | Unread, driver: str, gpus: Sequence[Gpu]) -> str:
    """What is known of the fabric manager, as the end of a sentence."""
    if isinstance(fabric, Unread):
        return f"what holds it up could not be read ({fabric.why})"
    manager = fabric.manager
    if _is_hosts(fabric, gpus):
        return (
            "this virtual machine has no NVSwitch of its own, so the fabric manager that serves it "
            "runs on its host"
        )
    if not has_fabric(fabric, gpus):
        return "no NVSwitch is seen here; the fabric manager may be outside of this container"
    if isinstance(manager, Unread):
        return (
            f"the fabric manager is on the machine itself and not visible from here: {manager.why}"
        )
    if versions_differ(manager, driver):
        return (
            f"the fabric manager {in_words(manager)}: its version {manager.version} is not the "
            f"driver's, {driver}"
        )
    words = f" ({manager.result})" if manager.result else ""
    return f"the fabric manager {in_words(manager)}{words}"


def in_words(service: ServiceState) -> str:
    """'is active', 'has failed'."""
    return "has failed" if service.state == "failed" else f"is {service.state}"


def _is_hosts(fabric: FabricFacts, gpus: Iterable[Gpu]) -> bool:
    """Passed-through GPUs whose switches stayed with the host."""
    passed = any(gpu.virtualization in ("passthrough", "vgpu") for gpu in gpus)
    return passed and not fabric.nvswitches


def advice(fabric: FabricFacts | Unread, driver: str, gpus: Sequence[Gpu]) -> str:
    """What to do, in the order that helps: versions, service, reset, another machine."""
    if starts_up(fabric):
        return (
            "wait a few minutes, then `holdfast check --only fabric-manager` again: the fabric is "
            "being set up"
        )
    steps = [_first_step(fabric, driver, gpus)]
    if not isinstance(fabric, Unread) and not has_fabric(fabric, gpus):
        # The same error without any fabric: confidential computing.
        steps.append("where confidential computing is on: `sudo nvidia-smi conf-compute -srs 1`")
    if isinstance(fabric, Unread) or not _is_hosts(fabric, gpus):
        steps.append(
            "if GPUs stay unregistered, end what runs on them and `sudo nvidia-smi -r`, or reboot"
        )
    return "; ".join([*steps, "else use another machine"])


def _first_step(fabric: FabricFacts | Unread, driver: str, gpus: Sequence[Gpu]) -> str:
    if not isinstance(fabric, Unread):
        if _is_hosts(fabric, gpus):
            return "have the host's administrator activate the NVLink partition of these GPUs"
        if versions_differ(fabric.manager, driver):
            return (
                f"install the fabric manager of exactly driver {driver}, then, with no job on its "
                "GPUs: `sudo systemctl restart nvidia-fabricmanager`"
            )
    return (
        "on the machine itself, with no job on its GPUs: `sudo systemctl restart "
        "nvidia-fabricmanager`"
    )
