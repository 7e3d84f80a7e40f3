"""How near GPUs and network cards are to each other, and which way NCCL takes between them.

The rules are NCCL's: it follows the PCI tree of /sys two levels at a time, since a PCIe switch is
two bridges there, and takes every root complex of a NUMA node for one CPU.
"""

from __future__ import annotations

import re

import msgspec

from holdfast.analysis.machine.fact import Unread
from holdfast.analysis.machine.gpu import Gpu, NvidiaFacts
from holdfast.analysis.machine.job import Setting
from holdfast.analysis.machine.machine import MachineFacts
from holdfast.analysis.machine.pci import GpuDirect, PciDevice, PciFacts
from holdfast.analysis.nccl_numbers import nccl_int

LEVELS = ("LOC", "NVL", "NVB", "C2C", "PIX", "PXB", "P2C", "PXN", "PHB", "SYS")
"""NCCL's names of distances, from near to far"""
OLD_LEVELS = ("LOC", "PIX", "PXB", "PHB", "SYS", "SYS")
"""what the numbers 0 to 5 mean where a level is asked for"""
GRACE = re.compile(r"\bG[HB]\d00\b")
"""GPUs that are joined to their CPU by NVLink-C2C"""


def switches(device: PciDevice) -> tuple[str, ...]:
    """The PCIe switches above a device, the nearest first: their upper ports."""
    return device.above[::-1][1::2]


def pcie_distance(one: PciDevice, other: PciDevice) -> str:
    """'PIX', 'PXB', 'PHB', 'NODE' or 'SYS' in the words of `nvidia-smi topo -m`."""
    mine, theirs = switches(one), switches(other)
    if set(mine) & set(theirs):
        return "PIX" if mine[0] == theirs[0] else "PXB"
    if one.numa != other.numa:
        return "SYS"
    return "PHB" if one.root == other.root else "NODE"


def nccl_name(distance: str) -> str:
    """NCCL knows no NODE: to it the root complexes of a NUMA node are one CPU."""
    return "NVL" if distance.startswith("NV") else {"NODE": "PHB"}.get(distance, distance)


def within(distance: str, level: str) -> bool:
    return LEVELS.index(nccl_name(distance)) <= LEVELS.index(level)


def nvlinks_between(one: Gpu, other: Gpu) -> int:
    """Active NVLinks from one GPU to the other, directly or through NVSwitch."""
    direct = sum(link.active and link.remote_bus_id == other.bus_id for link in one.nvlinks)
    if direct:
        return direct
    return min(
        sum(link.active and link.remote == "switch" for link in gpu.nvlinks) for gpu in (one, other)
    )


def cpu_numbers(listed: str) -> set[int]:
    """'0-2,8' -> {0, 1, 2, 8}."""
    parts = (part.partition("-") for part in listed.split(",") if part)
    return {n for low, _, high in parts for n in range(int(low), int(high or low) + 1)}


def level(setting: Setting | None, default: str) -> str:
    """What NCCL makes of NCCL_P2P_LEVEL or NCCL_NET_GDR_LEVEL."""
    value = setting.value if setting else ""
    if value in LEVELS:
        return value
    if value[:1].isdecimal() and (number := re.match(r"\d+", value)):
        return OLD_LEVELS[min(int(number[0]), len(OLD_LEVELS) - 1)]
    return default


def p2p_level(facts: MachineFacts, pci: PciFacts, gpus: int) -> str:
    """How far apart GPUs may be for NCCL to let one write into the other's memory."""
    disabled = facts.setting("NCCL_P2P_DISABLE")
    if disabled and nccl_int(disabled.value) == 1:
        return "LOC"
    default = "SYS" if pci.cpu_vendor == "AuthenticAMD" and gpus <= 2 else "PXB"
    return level(facts.setting("NCCL_P2P_LEVEL"), default)


def gpu_direct_way(direct: GpuDirect) -> str:
    """By what a card reads GPU memory; '' when it cannot."""
    if direct.dmabuf is True:
        return "DMA-BUF"
    return direct.peermem


# --- all of it at once --------------------------------------------------------------------------


class GpuPair(msgspec.Struct, frozen=True, kw_only=True):
    gpus: tuple[str, str]
    distance: str
    """'NV18', 'PIX'…"""
    route: str
    """'NVLink', 'P2P' (over PCIe) or 'host memory': what NCCL takes by default"""


class NicPair(msgspec.Struct, frozen=True, kw_only=True):
    gpu: str
    nic: str
    distance: str
    gpu_direct: bool | None
    """would NCCL let this card read the GPU's memory by itself; None of AMD's GPUs: not known"""


class Topology(msgspec.Struct, frozen=True, kw_only=True):
    host: str
    pci: PciFacts
    """its devices have the names by which the driver calls them"""
    models: dict[str, str]
    """GPU3 -> 'NVIDIA H100 80GB HBM3'"""
    gpu_pairs: tuple[GpuPair, ...]
    """of NVIDIA's GPUs; what joins AMD's is not seen"""
    nic_pairs: tuple[NicPair, ...]
    unplaced: tuple[str, ...]
    """GPUs that the driver shows, and the PCI tree does not: /sys of another machine, or hidden"""
    rdma_cards: tuple[str, ...]
    gpu_direct: str
    """by what cards read GPU memory; '' when they cannot, or nothing is known"""
    gpu_direct_level: str
    p2p_level: str

    def named(self, kind: str) -> tuple[PciDevice, ...]:
        return tuple(d for d in self.pci.devices if d.kind == kind and d.name)

    def nearest(self, gpu: str) -> tuple[NicPair, ...]:
        """The cards that are nearest to this GPU; RDMA cards only, where there are any."""
        pairs = [pair for pair in self.nic_pairs if pair.gpu == gpu]
        pairs = [pair for pair in pairs if pair.nic in self.rdma_cards] or pairs
        best = min((LEVELS.index(nccl_name(pair.distance)) for pair in pairs), default=0)
        return tuple(p for p in pairs if LEVELS.index(nccl_name(p.distance)) == best)


def topology(facts: MachineFacts, pci: PciFacts) -> Topology:
    """What can be said with the facts at hand; only the PCI tree must be known."""
    if isinstance(facts.settings, Unread):
        facts = msgspec.structs.replace(facts, settings=())
    seen = facts.nvidia if isinstance(facts.nvidia, NvidiaFacts) else NvidiaFacts(present=False)
    by_bus = {gpu.bus_id: gpu for gpu in seen.gpus if gpu.bus_id}
    placed = {device.bus_id for device in pci.devices}
    pci = _as_the_driver_counts(pci, by_bus)
    gpus = [d for d in pci.devices if d.kind == "gpu" and d.name]
    nics = [d for d in pci.devices if d.kind == "nic"]
    nvidia = [gpu for gpu in gpus if gpu.name.startswith("GPU")]
    used = min(len(nvidia), facts.plan.nproc) if facts.plan.nproc > 1 else len(nvidia)
    p2p = p2p_level(facts, pci, used)
    on_grace = any(GRACE.search(gpu.name) for gpu in seen.gpus)
    gdr = level(facts.setting("NCCL_NET_GDR_LEVEL"), "PHB" if on_grace else "PXB")
    known_direct = facts.gpu_direct if not isinstance(facts.gpu_direct, Unread) else None
    way = gpu_direct_way(known_direct) if known_direct else ""
    rdma = () if isinstance(facts.rdma_devices, Unread) else facts.rdma_devices

    def direct(gpu: PciDevice, nic: PciDevice) -> bool | None:
        if gpu not in nvidia:
            return None
        return bool(way) and nic.name in rdma and within(pcie_distance(gpu, nic), gdr)

    return Topology(
        host=facts.host,
        pci=pci,
        models={d.name: by_bus[d.bus_id].name for d in gpus if d.bus_id in by_bus},
        gpu_pairs=tuple(
            _gpu_pair(one, other, by_bus, p2p)
            for number, one in enumerate(nvidia)
            for other in nvidia[number + 1 :]
        ),
        nic_pairs=tuple(
            NicPair(
                gpu=gpu.name,
                nic=nic.name,
                distance=pcie_distance(gpu, nic),
                gpu_direct=direct(gpu, nic),
            )
            for gpu in gpus
            for nic in nics
        ),
        unplaced=tuple(f"GPU{gpu.index}" for gpu in seen.gpus if gpu.bus_id not in placed),
        rdma_cards=rdma,
        gpu_direct=way,
        gpu_direct_level=gdr,
        p2p_level=p2p,
    )


def _as_the_driver_counts(pci: PciFacts, by_bus: dict[str, Gpu]) -> PciFacts:
    """In a container the driver counts only the GPUs it shows there; /sys shows all of them."""
    if not by_bus:
        return pci

    def named(device: PciDevice) -> PciDevice:
        if device.kind != "gpu" or device.driver == "amdgpu":
            return device
        gpu = by_bus.get(device.bus_id)
        return msgspec.structs.replace(device, name=f"GPU{gpu.index}" if gpu else "")

    return msgspec.structs.replace(pci, devices=tuple(map(named, pci.devices)))


def _gpu_pair(one: PciDevice, other: PciDevice, by_bus: dict[str, Gpu], p2p: str) -> GpuPair:
    links = 0
    if one.bus_id in by_bus and other.bus_id in by_bus:
        links = nvlinks_between(by_bus[one.bus_id], by_bus[other.bus_id])
    distance = f"NV{links}" if links else pcie_distance(one, other)
    near = within(distance, p2p)
    route = ("NVLink" if links else "P2P") if near else "host memory"
    return GpuPair(gpus=(one.name, other.name), distance=distance, route=route)
