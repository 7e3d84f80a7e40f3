"""Direct traffic over PCIe that NCCL would use here, and what stands in its way."""

from __future__ import annotations

import msgspec

from holdfast.analysis.machine.fact import known
from holdfast.analysis.machine.machine import MachineFacts
from holdfast.analysis.machine.pci import PciDevice, PciFacts
from holdfast.analysis.machine.topology import pcie_distance, topology

NO_PEER_ACCESS = "GeForce"
"""in a model's name: its driver offers no peer access over PCIe, and NCCL asks the driver"""


class PeerPath(msgspec.Struct, frozen=True, kw_only=True):
    """Two devices that would write into each other's memory over PCIe."""

    ends: tuple[str, str]
    """'GPU0', and 'GPU1' or 'mlx5_0'"""
    in_switch: bool
    """a PCIe switch could forward it without the CPU"""
    redirecting: tuple[str, ...]
    """bridges between the two whose ACS sends it up to the root complex"""
    together: bool
    """in one group of the IOMMU: ACS did not keep them apart when the machine started"""

    def __str__(self) -> str:
        return f"{self.ends[0]} and {self.ends[1]}"


def peer_paths(facts: MachineFacts) -> tuple[PeerPath, ...]:
    """Between GPUs; to network cards as well where the job has several machines."""
    pci = known(facts.pci)
    known(facts.nvidia)
    seen = topology(facts, pci)
    devices = {device.name: device for device in seen.pci.devices if device.name}
    pairs = [
        pair.gpus
        for pair in seen.gpu_pairs
        if pair.route == "P2P"
        and not any(NO_PEER_ACCESS in seen.models.get(g, "") for g in pair.gpus)
    ]
    if facts.plan.multi_node:
        pairs += [(pair.gpu, pair.nic) for pair in seen.nic_pairs if pair.gpu_direct]
    return tuple(_path(devices[one], devices[other], pci) for one, other in pairs)


def _path(one: PciDevice, other: PciDevice, pci: PciFacts) -> PeerPath:
    return PeerPath(
        ends=(one.name, other.name),
        in_switch=pcie_distance(one, other) in ("PIX", "PXB"),
        redirecting=_redirecting(one, other, pci),
        together=bool(one.iommu_group) and one.iommu_group == other.iommu_group,
    )


def _redirecting(one: PciDevice, other: PciDevice, pci: PciFacts) -> tuple[str, ...]:
    """Bridges that send traffic between two devices of one switch up to the root complex."""
    shared = set(one.above) & set(other.above)
    between = (set(one.above) | set(other.above)) - shared
    return tuple(d.bus_id for d in pci.devices if d.bus_id in between and d.acs_redirects)
