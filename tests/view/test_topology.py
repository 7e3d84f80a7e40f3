"""The picture: complete, plain, no wider than asked for, and harmless whatever it shows."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.analysis.machine import MachineFacts, PciFacts, RocmFacts, Unread
from holdfast.analysis.machine.topology import topology
from holdfast.view import topology as picture
from tests.check.readers import pci_trees
from tests.faults.machines import settings
from tests.faults.made_topologies import on_tree

TREES = {
    "rack server": pci_trees.dgx_h100,
    "switches below switches": pci_trees.hgx_a100,
    "workstation": pci_trees.workstation,
    "switched workstation": pci_trees.switched_workstation,
    "one GPU in a guest": pci_trees.one_gpu_passed_through,
    "cloud": pci_trees.eight_gpus_of_a_cloud,
}


def drawn(machine: MachineFacts, width: int = 100) -> str:
    assert isinstance(machine.pci, PciFacts)
    return picture.draw(machine, topology(machine, machine.pci), width=width)


@pytest.mark.parametrize("make", TREES.values(), ids=list(TREES))
def test_fits_and_names_everything(tmp_path: Path, make: Any) -> None:
    machine = on_tree(make(tmp_path), nvlink=True)
    assert isinstance(machine.pci, PciFacts)
    for width in (80, 100, 120):
        text = drawn(machine, width)
        # the headline may be longer; tables and prose are not
        assert [line for line in text.splitlines()[2:] if len(line) > width] == []
        assert [d for d in machine.pci.devices if d.name not in text] == []
        assert text.isascii()


def test_a_rack_server(tmp_path: Path) -> None:
    text = drawn(on_tree(pci_trees.dgx_h100(tmp_path), nvlink=True))
    for line in (
        "node-a: 8 GPUs, 10 network cards, 4 NVSwitches, 2 NUMA nodes",
        "NUMA node 1, CPUs 56-111,168-223",
        "      GPU0     0000:1b:00.0  NVIDIA H100 80GB HBM3",
        "  GPU4   mlx5_6 (PIX), GPUDirect; CPUs 56-111,168-223",
        "GPU to GPU     NCCL connects them over NVLink",
        "ACS            no bridge redirects traffic between devices",
    ):
        assert line in text.splitlines()
    assert "by DMA-BUF; NCCL uses it for PXB and nearer: 8 of 8 GPUs" in text


def test_what_acs_and_the_iommu_do(tmp_path: Path) -> None:
    text = drawn(on_tree(pci_trees.switched_workstation(tmp_path, acs=0x1D)))
    assert "7 of 7 bridges redirect traffic" in text
    assert "`holdfast check --only p2p-acs-iommu`" in text


def test_what_the_job_will_see(tmp_path: Path) -> None:
    hiding = settings(CUDA_VISIBLE_DEVICES="3,1")
    text = drawn(on_tree(pci_trees.switched_workstation(tmp_path), settings=hiding))
    assert "the job        will see GPU3, GPU1 (CUDA_VISIBLE_DEVICES=3,1)" in text


def test_a_machine_without_gpu(tmp_path: Path) -> None:
    tree = pci_trees.PciTree(tmp_path)
    tree.nic("pci0000:00/0000:00:03.0", "", "eth0", vendor="0x1af4", driver="virtio-pci")
    text = drawn(on_tree(tree))
    assert "no GPU that a driver shows, 1 network card" in text
    assert "distances" not in text


def test_gpus_that_the_tree_hides_are_counted(tmp_path: Path) -> None:
    bare = on_tree(pci_trees.PciTree(tmp_path / "bare"))
    shown = on_tree(pci_trees.switched_workstation(tmp_path / "shown")).nvidia
    text = drawn(msgspec.structs.replace(bare, nvidia=shown))
    assert "4 GPUs that the PCI tree does not show, 0 network cards" in text


def test_gaps_are_said(tmp_path: Path) -> None:
    gap = Unread(why="no answer within 5 s")
    text = drawn(on_tree(pci_trees.switched_workstation(tmp_path), nvidia=gap, gpu_direct=gap))
    assert "models and NVLinks are not known: no answer within 5 s" in text
    assert "GPUDirect      not known: no answer within 5 s" in text


def test_guests_and_topology_files(tmp_path: Path) -> None:
    tree = pci_trees.eight_gpus_of_a_cloud(tmp_path)
    assert "set NCCL_TOPO_FILE" in drawn(on_tree(tree))
    given = on_tree(tree, settings=settings(NCCL_TOPO_FILE="/opt/topo.xml"))
    assert "takes distances from /opt/topo.xml" in drawn(given)


def test_amds_gpus_are_shown_with_what_is_not_seen(tmp_path: Path) -> None:
    tree = pci_trees.PciTree(tmp_path)
    for number in (5, 6):
        way = f"pci0000:00/0000:00:0{number}.0"
        tree.gpu(way, vendor="0x1002", kind="0x120000", driver="amdgpu")
    text = drawn(on_tree(tree, rocm=RocmFacts(gpus=("gfx942",) * 2, driver="")))
    assert "?     not seen: what joins AMD's GPUs (xGMI)" in text
    assert "AMD            2 AMD GPUs" in text


def test_names_from_outside_cannot_drive_the_terminal(tmp_path: Path) -> None:
    tree = pci_trees.PciTree(tmp_path)
    tree.gpu("pci0000:00/0000:00:05.0")
    tree.nic("pci0000:00/0000:00:03.0", "", "e\x1b[2Jvil")
    assert "\x1b" not in drawn(on_tree(tree))
