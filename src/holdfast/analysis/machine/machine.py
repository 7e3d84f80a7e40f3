"""Everything we know of one machine."""

from __future__ import annotations

from holdfast.analysis.machine.fabric import FabricFacts
from holdfast.analysis.machine.fact import Fact, Unread, known
from holdfast.analysis.machine.gpu import CudaFacts, NvidiaFacts, RocmFacts
from holdfast.analysis.machine.host import (
    Cgroup,
    CheckpointItem,
    ClockSync,
    Container,
    Folder,
    HostLoad,
    KernelEvent,
    Leftovers,
    Limits,
    ProcessRoom,
    RendezvousFile,
    Security,
    Shm,
    Software,
    VariableSearch,
)
from holdfast.analysis.machine.job import Plan, Setting, Smoke
from holdfast.analysis.machine.network import (
    Interface,
    PortFacts,
    PortRanges,
    Reach,
    Resolution,
    Route,
)
from holdfast.analysis.machine.pci import GpuDirect, PciFacts
from holdfast.analysis.machine.rdma import RdmaCard, RdmaPort


class MachineFacts(Fact, frozen=True):
    """Everything we know of one machine. One reader per field (check/collect.py)."""

    plan: Plan
    host: str
    settings: tuple[Setting, ...] | Unread
    port: PortFacts | Unread
    port_ranges: PortRanges | Unread
    limits: Limits | Unread
    launcher_limits: Limits | Unread | None
    """of the pid the user named; None when none was named"""
    process_room: ProcessRoom | Unread
    shm: Shm | Unread
    interfaces: tuple[Interface, ...] | Unread
    routes: tuple[Route, ...] | Unread
    own_name: Resolution | Unread
    own_fqdn: str | Unread
    master_name: Resolution | Unread | None
    """None when no master address was named"""
    master_reach: Reach | Unread | None
    """None when the master is this machine, or none was named"""
    loopback: tuple[Reach, ...] | Unread
    """listen and connect on 127.0.0.1 and ::1"""
    container: Container | Unread
    cgroup: Cgroup | Unread
    load: HostLoad | Unread
    security: Security | Unread
    clock: ClockSync | Unread
    folders: tuple[Folder, ...] | Unread
    checkpoints: tuple[CheckpointItem, ...] | Unread
    rendezvous_files: tuple[RendezvousFile, ...] | Unread
    kernel_log: tuple[KernelEvent, ...] | Unread
    leftovers: Leftovers | Unread
    software: Software | Unread
    variable_search: VariableSearch | Unread
    rdma_devices: tuple[str, ...] | Unread
    """names under /sys/class/infiniband"""
    rdma_ports: tuple[RdmaPort, ...] | Unread
    rdma_cards: tuple[RdmaCard, ...] | Unread
    accelerators: tuple[str, ...] | Unread
    """GPU device nodes: '/dev/nvidia0'"""
    nvidia: NvidiaFacts | Unread
    cuda: CudaFacts | Unread
    """what CUDA programs meet on each GPU"""
    fabric: FabricFacts | Unread
    rocm: RocmFacts | Unread
    pci: PciFacts | Unread
    gpu_direct: GpuDirect | Unread
    smoke: Smoke | Unread | None
    """None when not asked for"""

    @property
    def timed_out(self) -> bool:
        """Did a reader not answer in time?"""
        facts = (getattr(self, name) for name in self.__struct_fields__)
        return any(isinstance(fact, Unread) and fact.timed_out for fact in facts)

    def setting(self, name: str) -> Setting | None:
        """The value in force: the environment beats any nccl.conf."""
        return next((s for s in known(self.settings) if s.name == name), None)
