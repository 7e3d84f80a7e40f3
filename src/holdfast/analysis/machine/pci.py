"""Where GPUs, network cards and switches are attached, and what lies between them."""

from __future__ import annotations

import msgspec

from holdfast.analysis.machine.fact import Fact, Unread


class PciDevice(Fact, frozen=True):
    bus_id: str
    """'0000:3d:00.0'"""
    kind: str
    """'gpu', 'nic', 'nvswitch', 'nvme' or 'bridge'"""
    name: str
    """what people call it: 'GPU3', 'mlx5_0', 'eth0', 'nvme0n1'; '' for a bridge"""
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


class PciFacts(Fact, frozen=True):
    devices: tuple[PciDevice, ...]
    acs_readable: bool
    iommu: str
    """'off', 'passthrough', 'translating', or 'unknown'"""
    virtual_machine: str
    """the hypervisor's name, 'yes' where it hides; '' on bare metal"""
    numa_cpus: dict[int, str] = msgspec.field(default_factory=dict)
    """NUMA node -> its CPUs, '0-31,64-95'"""
    cpus_usable: str = ""
    """by this process's affinity, in the same form"""


class GpuDirect(Fact, frozen=True):
    """Can a network card read GPU memory by itself?"""

    peermem: str
    """'nvidia_peermem 580.65.06', '' when no such module is loaded"""
    dmabuf: bool | Unread
    """does every GPU's driver export memory as DMA-BUF"""
    kernel: str
    """release of the kernel: DMA-BUF needs 5.12"""
