"""PCI trees of machines as /sys shows them: a rack server with NVSwitch, a workstation, guests."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from pathlib import Path

GPU, NIC, INFINIBAND, SWITCH, BRIDGE = "0x030200", "0x020000", "0x020700", "0x068000", "0x060400"
NVIDIA, MELLANOX = "0x10de", "0x15b3"


def config_space(acs: int | None, *, length: int = 4096) -> bytes:
    """Of a bridge: an error-reporting capability first, then ACS with these control bits."""
    config = bytearray(length)
    if length > 0x100:
        struct.pack_into("<I", config, 0x100, 0x0001 | 2 << 16 | 0x148 << 20)
        if acs is not None:
            struct.pack_into("<IHH", config, 0x148, 0x000D | 1 << 16, 0x5F, acs)
    return bytes(config)


class PciTree:
    """Plants devices below a root; every bridge on the way is planted with the first of them."""

    def __init__(self, root: Path, *, platform: str = "", acs: int = 0, readable: bool = True):
        self.root = root
        self.platform = platform
        self.acs = acs
        self.readable = readable
        self.groups = 0
        (root / "sys/bus/pci/devices").mkdir(parents=True)

    def device(
        self,
        way: str,
        *,
        kind: str,
        vendor: str,
        driver: str = "",
        numa: int = -1,
        group: str = "",
        iommu: str = "DMA-FQ",
        below: tuple[str, ...] = (),
    ) -> Path:
        """`way` is 'pci0000:15/0000:15:01.0/…', down to the device; `below` its own folders."""
        top, *parts = way.split("/")
        folder = self.root / "sys/devices" / self.platform / top
        for bridge in parts[:-1]:
            folder /= bridge
            if not folder.exists():
                self._plant(folder, BRIDGE, "0x1000", "pcieport", numa)
                length = 4096 if self.readable else 64
                (folder / "config").write_bytes(config_space(self.acs, length=length))
        folder /= parts[-1]
        self._plant(folder, kind, vendor, driver, numa)
        for name in below:
            (folder / name).mkdir(parents=True)
        if group:
            home = self.root / "sys/kernel/iommu_groups" / group
            home.mkdir(parents=True, exist_ok=True)
            (home / "type").write_text(f"{iommu}\n")
            (folder / "iommu_group").symlink_to(home)
        return folder

    def gpu(self, way: str, **more: object) -> Path:
        options: dict[str, object] = {"kind": GPU, "vendor": NVIDIA, "driver": "nvidia", **more}
        return self.device(way, **options)  # type: ignore[arg-type]

    def nic(self, way: str, rdma: str = "", net: str = "", **more: object) -> Path:
        below = tuple(
            folder for folder, name in ((f"infiniband/{rdma}", rdma), (f"net/{net}", net)) if name
        )
        options = {"kind": NIC, "vendor": MELLANOX, "driver": "mlx5_core", "below": below, **more}
        return self.device(way, **options)  # type: ignore[arg-type]

    def file(self, name: str, text: str) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def numa(self, cpus: Mapping[int, str]) -> None:
        for node, listed in cpus.items():
            self.file(f"sys/devices/system/node/node{node}/cpulist", f"{listed}\n")

    def bare_metal(self, vendor: str = "GenuineIntel") -> None:
        self.file("proc/cpuinfo", f"processor\t: 0\nvendor_id\t: {vendor}\nflags\t\t: fpu vme\n")

    def guest(self, maker: str, product: str) -> None:
        self.file("proc/cpuinfo", "vendor_id : GenuineIntel\nflags : fpu vme hypervisor lahf_lm\n")
        self.file("sys/class/dmi/id/sys_vendor", f"{maker}\n")
        self.file("sys/class/dmi/id/product_name", f"{product}\n")

    def _plant(self, folder: Path, kind: str, vendor: str, driver: str, numa: int) -> None:
        folder.mkdir(parents=True)
        (folder / "class").write_text(f"{kind}\n")
        (folder / "vendor").write_text(f"{vendor}\n")
        (folder / "numa_node").write_text(f"{numa}\n")
        if driver:
            home = self.root / "sys/bus/pci/drivers" / driver
            home.mkdir(parents=True, exist_ok=True)
            (folder / "driver").symlink_to(home)
        (self.root / "sys/bus/pci/devices" / folder.name).symlink_to(folder)


def dgx_h100(root: Path, **how: object) -> PciTree:
    """Each of eight GPUs behind a switch of its own with one card; NVSwitches; two sockets."""
    tree = PciTree(root, **how)  # type: ignore[arg-type]
    tree.bare_metal()
    tree.numa({0: "0-55,112-167", 1: "56-111,168-223"})
    gpus = (0x1B, 0x43, 0x52, 0x61, 0x9D, 0xC3, 0xD1, 0xDF)
    cards = (0, 3, 4, 5, 6, 9, 10, 11)
    for number, (bus, card) in enumerate(zip(gpus, cards, strict=True)):
        top = bus - 6
        switch = f"pci0000:{top:02x}/0000:{top:02x}:01.0/0000:{top + 1:02x}:00.0"
        numa = number // 4
        port = f"{switch}/0000:{top + 2:02x}"
        tree.nic(f"{port}:00.0/0000:{bus - 3:02x}:00.0", f"mlx5_{card}", kind=INFINIBAND, numa=numa)
        tree.gpu(f"{port}:10.0/0000:{bus:02x}:00.0", numa=numa)
    for number, (bus, card) in enumerate(((0x29, 1), (0xAA, 7))):
        top = bus - 1
        tree.nic(
            f"pci0000:{top:02x}/0000:{top:02x}:01.0/0000:{bus:02x}:00.0",
            f"mlx5_{card}",
            f"storage{number}",
            numa=number,
        )
    for number in range(4):
        tree.device(
            f"pci0000:00/0000:00:1b.{number}/0000:0{5 + number}:00.0",
            kind=SWITCH,
            vendor=NVIDIA,
            driver="nvidia-nvswitch",
            numa=0,
        )
    return tree


def hgx_a100(root: Path, **how: object) -> PciTree:
    """Pairs of GPUs under switches below switches, with two cards each."""
    tree = PciTree(root, **how)  # type: ignore[arg-type]
    tree.bare_metal("AuthenticAMD")
    tree.numa({node: f"{node * 32}-{node * 32 + 31}" for node in range(4)})
    for pair in range(4):
        top, numa = 0x20 * (pair + 1), 3 - pair
        upper = f"pci0000:{top:02x}/0000:{top:02x}:01.1/0000:{top + 1:02x}:00.0"
        inner = f"{upper}/0000:{top + 2:02x}:00.0/0000:{top + 3:02x}:00.0/0000:{top + 4:02x}"
        cards = f"{upper}/0000:{top + 2:02x}:10.0/0000:{top + 5:02x}:00.0/0000:{top + 6:02x}"
        for number in range(2):
            card = 2 * pair + number
            tree.gpu(f"{inner}:{number}0.0/0000:{top + 7 + number:02x}:00.0", numa=numa)
            tree.nic(
                f"{cards}:{number}0.0/0000:{top + 10 + number:02x}:00.0",
                f"mlx5_{card}",
                f"ib{card}",
                numa=numa,
            )
    return tree


def workstation(root: Path, *, iommu: str = "DMA-FQ", **how: object) -> PciTree:
    """Two cards in slots of the processor, no switch, an ordinary network interface."""
    tree = PciTree(root, **how)  # type: ignore[arg-type]
    tree.bare_metal("AuthenticAMD")
    tree.numa({0: "0-31"})
    for group, bus in (("14", 0x41), ("15", 0xC1)):
        top = f"{bus - 1:02x}"
        way = f"pci0000:{top}/0000:{top}:01.1/0000:{bus:02x}:00.0"
        tree.gpu(way, kind="0x030000", group=group, iommu=iommu, numa=0)
    way = "pci0000:00/0000:00:02.1/0000:02:00.0"
    tree.nic(way, "", "enp2s0", vendor="0x8086", driver="igc", group="7", iommu=iommu, numa=0)
    tree.device(
        "pci0000:00/0000:00:02.2/0000:03:00.0",
        kind="0x010802",
        vendor="0x144d",
        driver="nvme",
        numa=0,
        below=("nvme/nvme0",),
    )
    return tree


def switched_workstation(root: Path, **how: object) -> PciTree:
    """Four cards behind one PCIe switch of one socket, with an RDMA card."""
    tree = PciTree(root, **how)  # type: ignore[arg-type]
    tree.bare_metal()
    tree.numa({0: "0-31"})
    port = "pci0000:16/0000:16:02.0/0000:17:00.0/0000:18"
    for number in range(4):
        tree.gpu(f"{port}:0{number}.0/0000:{0x19 + number:02x}:00.0", numa=0)
    tree.nic(f"{port}:04.0/0000:1d:00.0", "mlx5_0", "ens1", numa=0)
    return tree


def one_gpu_passed_through(root: Path) -> PciTree:
    """Recorded: an H200 in a small virtual machine, without bridges and without NUMA."""
    tree = PciTree(root)
    tree.file("proc/cpuinfo", "vendor_id\t: GenuineIntel\nflags\t\t: fpu hypervisor\n")
    tree.numa({0: "0-15"})
    tree.gpu("pci0000:00/0000:00:06.0")
    tree.device(
        "pci0000:00/0000:00:03.0",
        kind=NIC,
        vendor="0x1af4",
        driver="virtio-pci",
        below=("virtio2/net/eth0",),
    )
    return tree


def eight_gpus_of_a_cloud(root: Path) -> PciTree:
    """Hyper-V gives every device a PCI domain of its own: no switch can be seen."""
    guid = "47505500-0001-0000-3130-444531303244"
    tree = PciTree(root, platform=f"LNXSYSTM:00/LNXSYBUS:00/ACPI0004:00/VMBUS:00/{guid}")
    tree.guest("Microsoft Corporation", "Virtual Machine")
    tree.numa({0: "0-47", 1: "48-95"})
    for number in range(8):
        numa = number // 4
        domain = f"{number + 1:04x}"
        tree.gpu(f"pci{domain}:00/{domain}:00:00.0", numa=numa)
        card = f"{0x101 + number:04x}"
        tree.nic(f"pci{card}:00/{card}:00:02.0", f"mlx5_ib{number}", f"ib{number}", numa=numa)
    return tree
