"""Where GPUs, network cards and switches are attached, and what lies between them."""

from __future__ import annotations

import msgspec

from holdfast.analysis.machine.fact import Fact, Unread


def pci_place(bus_id: str) -> str:
    """'00000000:3D:00.0' and '0000:3d:00' are one place, '0000:3d:00': domain, bus and device."""
    device = bus_id.lower().partition(".")[0].strip(":")
    domain, _, rest = device.partition(":")
    return f"{domain.lstrip('0').rjust(4, '0')}:{rest}" if rest else device


class PciDevice(Fact, frozen=True):
    bus_id: str
    """'0000:3d:00.0'"""
    kind: str
    """'gpu', 'nic', 'nvswitch', 'nvme' or 'bridge'"""
    name: str
    """what people call it: 'GPU3', 'mlx5_0', 'eth0', 'nvme0'; '' for a bridge. GPUs of NVIDIA are
    counted by bus id, as its driver does; those of AMD are 'AMD0'…"""
    above: tuple[str, ...]
    """bus ids of the bridges from the root complex down to it"""
    root: str
    """'pci0000:3a', the root complex"""
    numa: int | None
    acs_redirects: bool | None = None
    """of a bridge: it sends traffic between the devices below it up to the root complex; None:
    it has no such switch, or this user may not read it"""
    iommu: str = ""
    """of the group it is in: 'DMA', 'DMA-FQ', 'identity'; '' without an IOMMU"""
    iommu_group: str = ""
    """the kernel puts devices that ACS does not keep apart into one group; '' without an IOMMU"""
    interfaces: tuple[str, ...] = ()
    """network interfaces of a card, also where its name is that of its RDMA device"""
    driver: str = ""
    """'nvidia', 'mlx5_core', 'vfio-pci'…; '' when none is bound"""


class PciFacts(Fact, frozen=True):
    devices: tuple[PciDevice, ...]
    """GPUs, cards, switches and drives, and the bridges above them"""
    acs_readable: bool
    iommu: str
    """'off', 'passthrough', 'translating', or 'unknown'"""
    virtual_machine: str
    """the hypervisor's name, 'yes' where it hides; '' on bare metal"""
    numa_cpus: dict[int, str] = msgspec.field(default_factory=dict)
    """NUMA node -> its CPUs, '0-31,64-95'"""
    cpus_usable: str = ""
    """by this process's affinity, in the same form"""
    cpu_vendor: str = ""
    """'AuthenticAMD', 'GenuineIntel'…; '' where the kernel does not say (ARM)"""
    cpu_architecture: str = ""
    """'x86_64', 'aarch64'"""
    topology_file: str = ""
    """a file of the provider that NCCL takes for the tree without being told"""


class GpuDirect(Fact, frozen=True):
    """Can a network card read GPU memory by itself?"""

    peermem: str
    """'nvidia_peermem 580.65.06', '' when no such module is loaded"""
    dmabuf: bool | Unread
    """can the driver export GPU memory as DMA-BUF: the open kernel module on Linux 5.12+"""
    kernel: str
    memory_peers: bool = False
    """does the kernel list it under memory_peers, the only place where NCCL before 2.23 looks"""
