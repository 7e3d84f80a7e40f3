"""What NVIDIA's driver says of itself and of each GPU, and what a CUDA program meets there."""

from __future__ import annotations

import msgspec

from holdfast.analysis.machine.fact import Fact, Unread


class GpuHolder(Fact, frozen=True):
    """A process that holds memory of a GPU."""

    pid: int
    """as the driver numbers it: outside of containers"""
    memory: int | None
    """bytes; None where the driver does not tell"""
    command: str = ""
    """'' when no such process is visible here: another container's, or another user's"""
    user: str = ""
    age: float | None = None
    """seconds since it started"""


class EccErrors(Fact, frozen=True):
    """Memory errors; since the driver was loaded, and over the life of the card."""

    corrected: int
    uncorrected: int
    corrected_ever: int | None = None
    uncorrected_ever: int | None = None
    sram_threshold_exceeded: bool | None = None


class RemappedRows(Fact, frozen=True):
    correctable: int
    uncorrectable: int
    pending: bool
    """repaired at the next reset"""
    failed: bool
    """no spare row was left: the card must be replaced"""


class PcieLink(Fact, frozen=True):
    """Width and generation now, and what card and slot could do together."""

    width: int
    width_possible: int
    generation: int
    generation_possible: int
    replays: int | None = None


class NvLink(Fact, frozen=True, array_like=True):
    index: int
    active: bool
    remote: str
    """'gpu', 'switch', 'npu' or '' where the driver does not say"""
    remote_bus_id: str = ""
    errors: dict[str, int] = msgspec.field(default_factory=dict)
    """counters that are not zero: 'crc_flit', 'crc_data', 'replay', 'recovery', 'ecc_data'…"""
    growing: dict[str, int] = msgspec.field(default_factory=dict)
    """by how much they grew between two looks"""


class GpuFabric(Fact, frozen=True):
    """How far the GPU's registration with the NVLink fabric has come."""

    state: str
    """'not supported', 'not started', 'in progress', 'completed', or 'unknown (7)'"""
    status: str
    """'' unless completed: then 'success' or NVML's name of the error"""
    clique: int | None = None
    cluster: str = ""
    """UUID of the NVLink domain; '' or all zeros: this machine alone"""
    unhealthy: tuple[str, ...] = ()
    """health fields that say fault (1 of 1 fault, 2 healthy, 0 not supported): 'degraded
    bandwidth', 'route recovery', 'route unhealthy', 'access timeout', or what of the configuration
    is wrong: 'no partition', 'insufficient NVLinks'…"""
    health_mask: int | None = None
    """None where the driver has only the oldest call"""
    summary: str = ""
    """'healthy', 'unhealthy', 'limited capacity'; '' where the driver does not sum up, which is
    no fault"""


class Gpu(Fact, frozen=True):
    """One GPU; None everywhere means that this card or driver does not tell."""

    index: int
    """by the driver, before CUDA_VISIBLE_DEVICES"""
    uuid: str = ""
    name: str = ""
    bus_id: str = ""
    """'0000:3d:00.0'"""
    minor: int | None = None
    """N of /dev/nvidiaN"""
    unread: str = ""
    """why it could not be read: 'GPU is lost', 'no answer within 18 s'; nothing below is known"""
    unread_kind: str = ""
    """'lost', 'reset required', 'no answer', 'no permission' (no fault: it is another's) or
    'error'; '' when it could be read"""
    memory_total: int | None = None
    memory_used: int | None = None
    """by processes and the driver"""
    memory_reserved: int | None = None
    """part of `memory_used` that the driver keeps for itself; None where it does not say"""
    holders: tuple[GpuHolder, ...] | Unread = ()
    busy: int | None = None
    """per cent of the last moment in which a kernel ran"""
    ecc: EccErrors | None = None
    ecc_enabled: bool | None = None
    remapped: RemappedRows | None = None
    retired_pages_pending: bool | None = None
    """cards before Ampere"""
    recovery_action: str | None = None
    """'none', 'gpu reset', 'node reboot', 'drain p2p', 'drain and reset', and from drivers of 2026
    on 'recover imex domain', 'bus reset', 'system reboot'; 'unknown (9)' for newer ones"""
    clock_events: tuple[str, ...] = ()
    """why the clocks are lower than asked for: 'hw slowdown', 'hw thermal slowdown', 'sw thermal
    slowdown', 'hw power brake', 'sw power cap', 'idle'…"""
    temperature: int | None = None
    slowdown_temperature: int | None = None
    power: float | None = None
    """watts"""
    power_limit: float | None = None
    default_power_limit: float | None = None
    sm_clock: int | None = None
    sm_clock_possible: int | None = None
    pcie: PcieLink | None = None
    mig: bool | None = None
    mig_devices: tuple[str, ...] | None = None
    """UUIDs of its MIG instances ('MIG-…'), where MIG is on; None where they could not be read"""
    persistence: bool | None = None
    compute_mode: str = ""
    """'default', 'exclusive process', 'prohibited'"""
    virtualization: str = ""
    """'none', 'passthrough', 'vgpu', 'host vgpu', 'host vsga'"""
    architecture: str = ""
    """'ampere', 'hopper', 'blackwell'…; '' where unknown"""
    nvlinks: tuple[NvLink, ...] = ()
    fabric: GpuFabric | None = None
    """None where the driver has no such call"""


class NvidiaFacts(Fact, frozen=True):
    """The driver, and every GPU it shows here."""

    present: bool
    """are there GPUs to ask for: a device node, a driver that answers or fails, or a card without
    any driver. Not so in a container that was given none, whatever its machine has"""
    module: str = ""
    """version of the kernel module; '' when it is not loaded or not visible"""
    open_module: bool | None = None
    library: str = ""
    """version of the user-space driver (libnvidia-ml)"""
    error: str = ""
    """what its initialisation brought: 'Driver/library version mismatch', 'Driver Not Loaded',
    'NVML Shared Library Not Found', 'Insufficient Permissions', 'Unknown Error', or 'no answer
    within 9 s'; '' when it works"""
    error_code: int = 0
    """NVML's number of it: 4 no permission, 9 not loaded, 12 no library, 18 the versions of library
    and module differ, 999 unknown; -1 where there was no answer"""
    cuda: str = ""
    """the newest CUDA this driver supports: '13.0'"""
    gpus: tuple[Gpu, ...] = ()
    bindings: str = ""
    """version of nvidia-ml-py"""
    unbound: int = 0
    """GPUs on the PCI bus that no kernel driver has taken"""


class CudaProbe(Fact, frozen=True):
    """What a small CUDA program of its own process met on one GPU."""

    index: int
    uuid: str
    step: str
    """the last step tried: 'load' (the library), 'init', 'context', 'memory', 'copy'"""
    code: int
    """CUDA's error number; 0 when all worked, -1 where CUDA gave none"""
    error: str
    """'CUDA_ERROR_SYSTEM_NOT_READY'; '' when all worked, or why there is no answer"""
    seconds: float
    skipped: str = ""
    """why steps after 'init' were left out: another program uses this GPU"""
    timed_out: bool = False
    """the step never returned"""


class CudaFacts(Fact, frozen=True):
    library: str
    """path of libcuda.so.1 as a program would load it; '' when there is none"""
    compat: bool
    """it is one of the forward-compatibility package, not the driver's own"""
    version: str
    """the CUDA version that this library has: '13.0'"""
    probes: tuple[CudaProbe, ...]


class RocmFacts(Fact, frozen=True):
    """What the kernel shows of AMD GPUs; all that holdfast sees of them."""

    gpus: tuple[str, ...]
    """their names, in the order of the kernel's topology"""
    driver: str
    """version of amdgpu; '' where it does not say"""
    memory_used: tuple[int, ...] = ()
    uncorrectable_errors: tuple[int | None, ...] = ()
