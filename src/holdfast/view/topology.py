"""The picture of a machine: GPUs, network cards, NUMA nodes, switches, the ways between them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import groupby

from holdfast.analysis.machine import (
    Interface,
    MachineFacts,
    PciDevice,
    RdmaPort,
    Unread,
    rocm,
    visible_gpus,
)
from holdfast.analysis.machine.topology import (
    GpuPair,
    Topology,
    cpu_numbers,
    nccl_name,
    switches,
)
from holdfast.text import counted, natural_order
from holdfast.view.text import harmless, wrapped

MEANINGS = {
    "NV": "NV#   # NVLinks between the two",
    "PIX": "PIX   one PCIe switch between",
    "PXB": "PXB   several PCIe switches, but not the CPU",
    "PHB": "PHB   through the CPU, at one of its PCIe root complexes",
    "NODE": "NODE  through the CPU, between root complexes of one NUMA node (NCCL says PHB)",
    "?": "?     not seen: what joins AMD's GPUs (xGMI)",
    "SYS": "SYS   through the link between NUMA nodes",
}
MANY = 4
"""drives or NVSwitches of one place that are named; more are counted"""
LONGEST = 40


def draw(facts: MachineFacts, seen: Topology, *, width: int) -> str:
    """Reads the same without colour and in a pipe; tables are as wide as `width` at most."""
    parts = [
        _headline(seen),
        _tree(facts, seen),
        *_tables(seen, width),
        _nearest(seen, width),
        _verdicts(facts, seen, width),
    ]
    return "\n\n".join(part for part in parts if part)


def _headline(seen: Topology) -> str:
    gpus = seen.named("gpu")
    parts = [counted(len(gpus), "GPU")] if gpus else []
    if seen.unplaced:
        parts.append(f"{counted(len(seen.unplaced), 'GPU')} that the PCI tree does not show")
    elif not gpus:
        parts.append("no GPU that a driver shows")
    parts.append(counted(len(seen.named("nic")), "network card"))
    if switched := [d for d in seen.pci.devices if d.kind == "nvswitch"]:
        parts.append(f"{len(switched)} NVSwitch{'es' if switched[1:] else ''}")
    if seen.pci.numa_cpus:
        parts.append(counted(len(seen.pci.numa_cpus), "NUMA node"))
    if seen.pci.virtual_machine:
        name = seen.pci.virtual_machine
        parts.append("virtual machine" + (f" ({harmless(name)})" if name != "yes" else ""))
    return f"{harmless(seen.host)}: {', '.join(parts)}"


# --- where everything is attached ---------------------------------------------------------------


def _tree(facts: MachineFacts, seen: Topology) -> str:
    ends = [d for d in seen.pci.devices if d.kind != "bridge"]
    ends.sort(key=lambda d: (d.numa is not None, d.numa or 0, d.root, switches(d)[::-1], d.bus_id))
    lines = []
    for numa, near in groupby(ends, key=lambda device: device.numa):
        lines.append(_numa_line(seen, numa))
        for root, attached in groupby(near, key=lambda device: device.root):
            lines.append(f"  {root or 'no root complex told'}")
            above: tuple[str, ...] = ()
            for way, group in groupby(attached, key=lambda device: switches(device)[::-1]):
                lines += _new_switches(above, way)
                above = way
                indent = "  " * (2 + len(way))
                lines += [indent + line for line in _devices(list(group), facts, seen)]
    return "\n".join(lines)


def _numa_line(seen: Topology, numa: int | None) -> str:
    if numa is None:
        everything = len(seen.pci.numa_cpus) == 1 and next(iter(seen.pci.numa_cpus.values()))
        return "no NUMA node told" + (f", CPUs {everything}" if everything else "")
    return f"NUMA node {numa}, CPUs {seen.pci.numa_cpus.get(numa) or 'unknown'}"


def _new_switches(before: tuple[str, ...], way: tuple[str, ...]) -> Iterator[str]:
    for depth, switch in enumerate(way):
        if way[: depth + 1] != before[: depth + 1]:
            yield f"{'  ' * (2 + depth)}switch {switch}"


def _devices(group: Sequence[PciDevice], facts: MachineFacts, seen: Topology) -> Iterator[str]:
    for device in group:
        if device.kind in ("gpu", "nic"):
            name = device.name or "(GPU)"
            said = _detail(device, facts, seen)
            yield f"{harmless(name):<8} {device.bus_id}  {harmless(said)}".rstrip()
    drives = [d.name or d.bus_id for d in group if d.kind == "nvme"]
    if drives:
        shown = ", ".join(drives) if len(drives) <= MANY else counted(len(drives), "NVMe drive")
        yield harmless(shown)
    if links := [d for d in group if d.kind == "nvswitch"]:
        yield f"{len(links)} NVSwitch{'es' if links[1:] else ''}"


def _detail(device: PciDevice, facts: MachineFacts, seen: Topology) -> str:
    if device.kind == "gpu":
        if not device.name:
            return f"not shown by the driver here (bound to {device.driver or 'no driver'})"
        return seen.models.get(device.name, "")
    ports = [] if isinstance(facts.rdma_ports, Unread) else facts.rdma_ports
    said = [_port(port) for port in ports if port.device == device.name]
    interfaces = [] if isinstance(facts.interfaces, Unread) else facts.interfaces
    own = {device.name, *device.interfaces}
    said += [_interface(one, device) for one in interfaces if one.name in own]
    return "; ".join(said) or (f"({device.driver})" if device.driver else "")


def _port(port: RdmaPort) -> str:
    rate = f"{port.rate:g} Gb/s" if port.rate else ""
    return ", ".join(part for part in (port.link_layer, rate, port.state) if part)


def _interface(one: Interface, device: PciDevice) -> str:
    speed = f"{one.speed / 1000:g} Gb/s" if one.speed and one.speed > 0 else ""
    name = "" if one.name == device.name else one.name
    return ", ".join(part for part in (name, speed, one.state) if part)


# --- how far apart ------------------------------------------------------------------------------


def _tables(seen: Topology, width: int) -> Iterator[str]:
    gpus = [device.name for device in seen.named("gpu")]
    between = {pair.gpus: pair.distance for pair in seen.gpu_pairs}
    cells = {(a, b): between.get((a, b)) or between.get((b, a)) or "?" for a in gpus for b in gpus}
    cells |= {(gpu, gpu): "X" for gpu in gpus}
    nics = sorted((d.name for d in seen.named("nic")), key=natural_order)
    cells |= {(pair.gpu, pair.nic): pair.distance for pair in seen.nic_pairs}
    if not gpus or len(gpus) + len(nics) < 2:
        return
    columns = [*(gpus if len(gpus) > 1 else ()), *nics]
    for number, chunk in enumerate(_chunks(columns, width - 8)):
        title = "distances" if not number else "distances, continued"
        rows = [_row("", chunk, chunk)]
        rows += [_row(gpu, [cells[gpu, name] for name in chunk], chunk) for gpu in gpus]
        yield "\n".join([title, *rows])
    used = set(cells.values())
    yield "\n".join(
        f"  {words}" for sign, words in MEANINGS.items() if any(_is(sign, one) for one in used)
    )


def _is(sign: str, distance: str) -> bool:
    return distance == sign or (sign == "NV" and nccl_name(distance) == "NVL")


def _row(label: str, cells: Iterable[str], columns: Iterable[str]) -> str:
    sized = (f"{harmless(cell):>{_room(name)}}" for cell, name in zip(cells, columns, strict=True))
    return f"  {harmless(label):<6}{''.join(sized)}".rstrip()


def _room(name: str) -> int:
    return max(len(harmless(name)), 4) + 2


def _chunks(names: Sequence[str], width: int) -> Iterator[list[str]]:
    chunk: list[str] = []
    for name in names:
        if chunk and sum(map(_room, [*chunk, name])) > width:
            yield chunk
            chunk = []
        chunk.append(name)
    if chunk:
        yield chunk


# --- which card belongs to which GPU ------------------------------------------------------------


def _nearest(seen: Topology, width: int) -> str:
    lines = []
    for device in seen.named("gpu"):
        pairs = seen.nearest(device.name)
        cards = ", ".join(sorted((pair.nic for pair in pairs), key=natural_order))
        card = f"{harmless(cards)} ({pairs[0].distance})" if pairs else "no network card"
        if pairs and pairs[0].gpu_direct is not None:
            direct = any(pair.gpu_direct for pair in pairs)
            card += ", GPUDirect" if direct else ", through host memory"
        cpus = seen.pci.numa_cpus.get(device.numa, "") if device.numa is not None else ""
        near = f"; CPUs {cpus}" if cpus else ""
        lines.append(wrapped(f"  {device.name:<6} {card}{near}", width, rest=" " * 9))
    return "\n".join(["nearest card and CPUs of each GPU", *lines]) if lines else ""


# --- what follows -------------------------------------------------------------------------------


def _verdicts(facts: MachineFacts, seen: Topology, width: int) -> str:
    said = [
        ("GPU to GPU", _gpu_to_gpu(seen)),
        ("GPUDirect", _gpu_direct(facts, seen)),
        ("IOMMU", _iommu(seen)),
        ("ACS", _acs(seen)),
        ("this process", _affinity(seen)),
        ("the job", _visible(facts)),
        ("NVIDIA", _unread(facts)),
        ("AMD", harmless(rocm.statement(facts.rocm))),
        ("NCCL", _topology_file(facts, seen)),
    ]
    rest = " " * 15
    return "\n".join(
        wrapped(f"{name:<13}  {words}", width, rest=rest) for name, words in said if words
    )


def _gpu_to_gpu(seen: Topology) -> str:
    if not seen.gpu_pairs:
        return ""
    routes: dict[str, list[GpuPair]] = {}
    for pair in seen.gpu_pairs:
        routes.setdefault(pair.route, []).append(pair)
    words = {
        "NVLink": "over NVLink",
        "P2P": "directly over PCIe (P2P)",
        "host memory": f"through host memory: P2P is for {seen.p2p_level} and nearer",
    }
    if len(routes) == 1:
        return f"NCCL connects them {words[seen.gpu_pairs[0].route]}"
    parts = [f"{counted(len(pairs), 'pair')} {words[route]}" for route, pairs in routes.items()]
    return "NCCL connects " + "; ".join(parts)


def _gpu_direct(facts: MachineFacts, seen: Topology) -> str:
    if not seen.named("gpu") or isinstance(facts.rdma_devices, Unread) or not facts.rdma_devices:
        return ""
    if isinstance(facts.gpu_direct, Unread):
        return f"not known: {facts.gpu_direct.why}"
    if not seen.gpu_direct:
        return "not possible: no nvidia-peermem module, and the driver exports no DMA-BUF"
    using = {pair.gpu for pair in seen.nic_pairs if pair.gpu_direct}
    which = f"{len(using)} of {len(seen.named('gpu'))} GPUs have a card that near"
    return f"by {seen.gpu_direct}; NCCL uses it for {seen.gpu_direct_level} and nearer: {which}"


def _iommu(seen: Topology) -> str:
    return {"off": "off", "passthrough": "passthrough", "translating": "translates addresses"}.get(
        seen.pci.iommu, "not known"
    )


def _acs(seen: Topology) -> str:
    bridges = [d for d in seen.pci.devices if d.kind == "bridge"]
    if not bridges:
        return ""
    if not seen.pci.acs_readable:
        return "only root may read it"
    redirecting = [d.bus_id for d in bridges if d.acs_redirects]
    if not redirecting:
        return "no bridge redirects traffic between devices"
    shown = ", ".join(redirecting[:MANY]) + (" …" if redirecting[MANY:] else "")
    return (
        f"{len(redirecting)} of {counted(len(bridges), 'bridge')} redirect traffic between devices "
        f"({shown}): `holdfast check --only p2p-acs-iommu` judges it"
    )


def _affinity(seen: Topology) -> str:
    if not seen.pci.cpus_usable:
        return ""
    usable = cpu_numbers(seen.pci.cpus_usable)
    nodes = {device.numa: device for device in seen.named("gpu") if device.numa is not None}
    far = [numa for numa in nodes if not usable & cpu_numbers(seen.pci.numa_cpus.get(numa, ""))]
    gpus = [device.name for device in seen.named("gpu") if device.numa in far]
    return f"may use CPUs {seen.pci.cpus_usable}" + (
        f": none of them is near {', '.join(gpus)}" if gpus else ""
    )


def _visible(facts: MachineFacts) -> str:
    """Only where a setting hides GPUs from the job."""
    if isinstance(facts.nvidia, Unread) or isinstance(facts.settings, Unread):
        return ""
    setting = facts.setting(visible_gpus.VARIABLE)
    indices = visible_gpus.seen_by_job(facts).indices
    if setting is None or indices is None:
        return ""
    shown = ", ".join(f"GPU{index}" for index in indices) or "no GPU"
    return f"will see {shown} ({setting.name}={harmless(setting.value)})"


def _unread(facts: MachineFacts) -> str:
    if isinstance(facts.nvidia, Unread) and facts.nvidia.why != "not asked for":
        return f"models and NVLinks are not known: {facts.nvidia.why}"
    if not isinstance(facts.nvidia, Unread) and facts.nvidia.present and facts.nvidia.error:
        return f"models and NVLinks are not known: {facts.nvidia.error}"
    return ""


def _topology_file(facts: MachineFacts, seen: Topology) -> str:
    """Guests often see no switch; clouds then give NCCL a file that tells what is near."""
    setting = None if isinstance(facts.settings, Unread) else facts.setting("NCCL_TOPO_FILE")
    if given := setting.value if setting else seen.pci.topology_file:
        return harmless(f"takes distances from {given}, not from what is seen here")
    guest = seen.pci.virtual_machine and seen.rdma_cards and seen.gpu_pairs
    if guest and not any(switches(device) for device in seen.pci.devices):
        return (
            "this guest shows no PCIe switches, so NCCL cannot see which card is near which GPU: "
            "if the provider has a topology file for this kind of machine, set NCCL_TOPO_FILE"
        )
    return ""
