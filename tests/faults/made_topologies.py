"""Whole machines from PCI trees: the real reader reads the tree, the rest is made to match."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from holdfast.analysis import machine as f
from holdfast.check.readers.pci import read_pci
from tests.check.readers.pci_trees import PciTree
from tests.faults import made_gpus
from tests.faults.machines import a_machine, a_plan, a_port_of


def read_tree(tree: PciTree) -> f.PciFacts:
    facts = read_pci(a_plan(), str(tree.root))
    assert isinstance(facts, f.PciFacts)
    return facts


def on_tree(tree: PciTree, *, nvlink: bool = False, **changes: Any) -> f.MachineFacts:
    """A machine with this tree, as the real reader reads it."""
    model = "NVIDIA H100 80GB HBM3" if nvlink else "NVIDIA H100 PCIe"
    return a_machine_of(read_tree(tree), nvlink=nvlink, model=model, **changes)


def pci_of(ways: Mapping[str, str], *, acs: bool | None = False, **changes: Any) -> f.PciFacts:
    """Name -> 'pci0000:16/0000:16:02.0/…/0000:19:00.0'; every bridge has this ACS setting."""
    ends, bridges = [], {}
    for name, way in ways.items():
        root, *above, bus_id = way.split("/")
        kind = "gpu" if name.startswith("GPU") else "nic"
        ends.append(_device(bus_id, kind, name, root, above, **changes))
        for number, bridge in enumerate(above):
            made = _device(bridge, "bridge", "", root, above[:number])
            bridges[bridge] = msgspec.structs.replace(made, acs_redirects=acs)
    groups = {device.iommu for device in ends}
    return made_gpus.pci(
        devices=(*ends, *bridges.values()),
        acs_readable=acs is not None,
        iommu={"": "off", "identity": "passthrough"}.get(groups.pop(), "translating"),
    )


def _device(
    bus_id: str, kind: str, name: str, root: str, above: Sequence[str], **changes: Any
) -> f.PciDevice:
    device = f.PciDevice(
        bus_id=bus_id, kind=kind, name=name, above=tuple(above), root=root, numa=0, driver="nvidia"
    )
    return msgspec.structs.replace(device, **changes)


SWITCH = "pci0000:16/0000:16:02.0/0000:17:00.0"
BEHIND_A_SWITCH = {
    "GPU0": f"{SWITCH}/0000:18:00.0/0000:19:00.0",
    "GPU1": f"{SWITCH}/0000:18:01.0/0000:1a:00.0",
    "mlx5_0": f"{SWITCH}/0000:18:02.0/0000:1b:00.0",
}
IN_SLOTS = {
    "GPU0": "pci0000:40/0000:40:01.1/0000:41:00.0",
    "GPU1": "pci0000:c0/0000:c0:01.1/0000:c1:00.0",
    "enp2s0": "pci0000:00/0000:00:02.1/0000:02:00.0",
}


def a_machine_of(
    pci: f.PciFacts, *, nvlink: bool = False, model: str = "NVIDIA RTX A6000", **changes: Any
) -> f.MachineFacts:
    """With the GPUs of this tree as the driver shows them, and its RDMA cards."""
    make = made_gpus.an_sxm_gpu if nvlink else made_gpus.a_gpu
    seen = [d for d in pci.devices if d.kind == "gpu" and d.name.startswith("GPU")]
    gpus = tuple(make(n, bus_id=gpu.bus_id, name=model) for n, gpu in enumerate(seen))
    cards = tuple(d.name for d in pci.devices if d.name.startswith("mlx"))
    made = {
        "pci": pci,
        "nvidia": msgspec.structs.replace(made_gpus.nvidia(), gpus=gpus),
        "rdma_devices": cards,
        "rdma_ports": tuple(map(a_port_of, cards)),
    }
    return a_machine(**{**made, **changes})
