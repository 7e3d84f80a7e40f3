"""Whole machines from PCI trees: the real reader reads the tree, the rest is made to match."""

from __future__ import annotations

from pathlib import Path
from typing import Any

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
    """A machine with this tree: its GPUs as the driver shows them, its RDMA cards up."""
    pci = read_tree(tree)
    make = made_gpus.an_sxm_gpu if nvlink else made_gpus.a_gpu
    seen = [d for d in pci.devices if d.kind == "gpu" and d.name.startswith("GPU")]
    gpus = tuple(make(number, bus_id=gpu.bus_id) for number, gpu in enumerate(seen))
    cards = tuple(d.name for d in pci.devices if d.kind == "nic" and d.name.startswith("mlx"))
    made = {
        "pci": pci,
        "nvidia": made_gpus.nvidia(*gpus) if gpus else made_gpus.nvidia(gpus=()),
        "rdma_devices": cards,
        "rdma_ports": tuple(map(a_port_of, cards)),
    }
    return a_machine(**{**made, **changes})


def new(folder: Path, name: str) -> Path:
    """A root for one more tree."""
    path = folder / name
    path.mkdir()
    return path
