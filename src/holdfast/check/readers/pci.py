"""Where GPUs and network cards are attached, and whether cards can read GPU memory."""

from __future__ import annotations

import contextlib
import itertools
import os
import platform
import re
from collections.abc import Iterable

import msgspec

from holdfast.analysis.machine import GpuDirect, PciDevice, PciFacts, Plan, Unread
from holdfast.analysis.versions import release
from holdfast.system import sysfs
from holdfast.system.pci_config import acs_redirects, read_config
from holdfast.text import numbers

BUS_ID = re.compile(r"[0-9a-f]{4,8}:[0-9a-f]{2}:[0-9a-f]{2}\.[0-7]")
ROOT = re.compile(r"pci[0-9a-f]{4,8}:[0-9a-f]{2}")
NVIDIA, AMD = "0x10de", "0x1002"
DISPLAY = ("0x0300", "0x0302", "0x0380", "0x1200")
"""VGA, 3D and other display controllers, and processing accelerators"""
COUNTED = {"nvidia": "GPU", "amdgpu": "AMD"}
NVSWITCH, NIC, NVME, BRIDGE = "0x0680", "0x02", "0x0108", "0x0604"
MEMORY_PEERS = "sys/kernel/mm/memory_peers"
PEERMEM = {
    "nvidia_peermem": "sys/module/nvidia_peermem/version",
    "nv_peer_mem": f"{MEMORY_PEERS}/nv_mem/version",
    "nv_peer_mem (nc)": f"{MEMORY_PEERS}/nv_mem_nc/version",
}
"""the three files by which NCCL recognises it"""
GIVEN = "var/run/nvidia-topologyd/virtualTopology.xml"
DMABUF_KERNEL = (5, 12)
GUEST = re.compile(
    r"QEMU|KVM|Virtual Machine|VMware|Google Compute|Amazon EC2 (?!.*metal)", re.IGNORECASE
)
FIRST_CPU = 4096
"""bytes of /proc/cpuinfo that hold it"""


def read_pci(_plan: Plan, root: str = "/") -> PciFacts | Unread:
    bus = os.path.join(root, "sys/bus/pci/devices")
    if not os.path.isdir(bus):
        return Unread(why="/sys/bus/pci/devices is not there: no PCI, or /sys is not mounted here")
    folders = {name: os.path.realpath(os.path.join(bus, name)) for name in sysfs.listed(bus)}
    found = [device for name in sorted(folders) if (device := _device(name, folders[name]))]
    ends = _numbered(found)
    above = sorted({bridge for device in ends for bridge in device.above})
    bridges, readable = [], True
    for name in above:
        folder = folders.get(name, "")
        config = read_config(folder)
        readable = readable and config is not None
        redirects = acs_redirects(config) if config else None
        bridge = _at(name, folder, "bridge", "", ())
        bridges.append(msgspec.structs.replace(bridge, acs_redirects=redirects))
    devices = (*ends, *bridges)
    return PciFacts(
        devices=devices,
        acs_readable=readable,
        iommu=_iommu(devices, root),
        virtual_machine=_virtual_machine(root),
        numa_cpus=_numa_cpus(root),
        cpus_usable=numbers(os.sched_getaffinity(0)),
        cpu_vendor=_cpu_field(root, "vendor_id"),
        cpu_architecture=platform.machine(),
        topology_file=f"/{GIVEN}" if os.path.exists(os.path.join(root, GIVEN)) else "",
    )


def _device(name: str, folder: str) -> PciDevice | None:
    """What matters to a training job; None for everything else."""
    kind = _kind(sysfs.text(folder, "class"), sysfs.text(folder, "vendor"))
    if not kind:
        return None
    interfaces = (*sysfs.listed(folder, "net"), *_virtio_interfaces(folder))
    card = [*sysfs.listed(folder, "infiniband"), *interfaces, *sysfs.listed(folder, "nvme")]
    if kind == "nic" and not card:
        return None  # a virtual function that is not in use, or a card given to a guest
    return _at(name, folder, kind, card[0] if card else "", interfaces)


def _at(name: str, folder: str, kind: str, called: str, interfaces: tuple[str, ...]) -> PciDevice:
    parts = folder.split(os.sep)
    roots = [n for n, part in enumerate(parts) if ROOT.fullmatch(part)]
    numa = sysfs.text(folder, "numa_node")
    return PciDevice(
        bus_id=name,
        kind=kind,
        name=called,
        above=tuple(p for p in parts[roots[-1] : -1] if BUS_ID.fullmatch(p)) if roots else (),
        root=parts[roots[-1]] if roots else "",
        numa=int(numa) if numa.isdecimal() else None,  # -1: the firmware does not say
        iommu=sysfs.text(folder, "iommu_group", "type"),
        iommu_group=sysfs.link_name(folder, "iommu_group"),
        interfaces=interfaces,
        driver=sysfs.link_name(folder, "driver"),
    )


def _kind(device_class: str, vendor: str) -> str:
    if device_class.startswith(DISPLAY) and vendor in (NVIDIA, AMD):
        return "gpu"
    if device_class.startswith(NVSWITCH) and vendor == NVIDIA:
        return "nvswitch"
    if device_class.startswith(NVME):
        return "nvme"
    return "nic" if device_class.startswith(NIC) else ""


def _numbered(found: Iterable[PciDevice]) -> list[PciDevice]:
    """NVIDIA's driver counts its GPUs by bus id; one that it does not drive has no number."""
    counts = {driver: itertools.count() for driver in COUNTED}

    def name(gpu: PciDevice) -> str:
        prefix = COUNTED.get(gpu.driver)
        return f"{prefix}{next(counts[gpu.driver])}" if prefix else ""

    return [msgspec.structs.replace(d, name=name(d)) if d.kind == "gpu" else d for d in found]


def _iommu(devices: Iterable[PciDevice], root: str) -> str:
    """What it does to the devices that matter; the rest of the machine may differ."""
    if not sysfs.listed(root, "sys/kernel/iommu_groups"):
        return "off"
    kinds = {device.iommu for device in devices if device.kind in ("gpu", "nic")}
    if not kinds or "" in kinds:
        return "unknown"
    return "passthrough" if kinds == {"identity"} else "translating"


def _virtual_machine(root: str) -> str:
    vendor = sysfs.text(root, "sys/class/dmi/id/sys_vendor")
    product = sysfs.text(root, "sys/class/dmi/id/product_name")
    flags = _cpu_field(root, "flags").split()
    # ARM has no such flag; QEMU and the clouds say it in the firmware's tables.
    guest = "hypervisor" in flags or (not flags and GUEST.search(f"{vendor} {product}"))
    return (f"{vendor} {product}".strip() or "yes") if guest else ""


def _cpu_field(root: str, name: str) -> str:
    """Of the first CPU: to list all of hundreds takes the kernel longer than a reader has."""
    with contextlib.suppress(OSError), open(os.path.join(root, "proc/cpuinfo"), "rb") as file:
        start = file.raw.read(FIRST_CPU).decode(errors="replace")
        found = re.search(rf"^{name}\s*:(.*)$", start, re.MULTILINE)
        return found[1].strip() if found else ""
    return ""


def _numa_cpus(root: str) -> dict[int, str]:
    folder = os.path.join(root, "sys/devices/system/node")
    nodes = (name for name in sysfs.listed(folder) if re.fullmatch(r"node\d+", name))
    return {int(name[4:]): sysfs.text(folder, name, "cpulist") for name in nodes}


def _virtio_interfaces(folder: str) -> tuple[str, ...]:
    below = (name for name in sysfs.listed(folder) if name.startswith("virtio"))
    return tuple(name for part in below for name in sysfs.listed(folder, part, "net"))


# --- can a card read GPU memory -----------------------------------------------------------------


def read_gpu_direct(_plan: Plan, root: str = "/") -> GpuDirect:
    loaded = [
        f"{name} {sysfs.text(root, path)}".strip()
        for name, path in PEERMEM.items()
        if os.path.exists(os.path.join(root, path))
    ]
    kernel = sysfs.text(root, "proc/sys/kernel/osrelease") or platform.release()
    return GpuDirect(
        peermem=loaded[0] if loaded else "",
        dmabuf=_dmabuf(root, kernel),
        kernel=kernel,
        memory_peers=bool(sysfs.listed(root, MEMORY_PEERS)),
    )


def _dmabuf(root: str, kernel: str) -> bool | Unread:
    """By its kind: to ask the driver itself takes CUDA's initialisation on every GPU."""
    version = sysfs.text(root, "proc/driver/nvidia/version")
    if not version:
        return Unread(why="/proc/driver/nvidia/version is not there: NVIDIA's driver is not loaded")
    return "Open Kernel Module" in version and release(kernel) >= DMABUF_KERNEL
