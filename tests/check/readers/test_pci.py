from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.analysis.machine import PciDevice, PciFacts, Unread
from holdfast.check.readers.pci import read_gpu_direct, read_pci
from holdfast.system.pci_config import acs_redirects
from tests.check.readers import pci_trees
from tests.check.readers.trees import plant
from tests.faults.machines import a_plan


def read(tree: pci_trees.PciTree) -> PciFacts:
    facts = read_pci(a_plan(), str(tree.root))
    assert isinstance(facts, PciFacts)
    return facts


def named(facts: PciFacts, name: str) -> PciDevice:
    return next(device for device in facts.devices if device.name == name)


def test_a_rack_server(tmp_path: Path) -> None:
    facts = read(pci_trees.dgx_h100(tmp_path))
    assert [d.name for d in facts.devices if d.kind == "gpu"] == [f"GPU{n}" for n in range(8)]
    assert sum(d.kind == "nvswitch" for d in facts.devices) == 4
    assert named(facts, "GPU0") == PciDevice(
        bus_id="0000:1b:00.0",
        kind="gpu",
        name="GPU0",
        above=("0000:15:01.0", "0000:16:00.0", "0000:17:10.0"),
        root="pci0000:15",
        numa=0,
        driver="nvidia",
    )
    assert named(facts, "mlx5_1").interfaces == ("storage0",)
    assert (facts.iommu, facts.virtual_machine, facts.cpu_vendor) == ("off", "", "GenuineIntel")
    assert facts.numa_cpus == {0: "0-55,112-167", 1: "56-111,168-223"}
    assert facts.acs_readable
    assert {d.acs_redirects for d in facts.devices if d.kind == "bridge"} == {False}
    assert facts.cpus_usable


def test_acs_of_bridges(tmp_path: Path) -> None:
    # SrcValid alone checks who sends; it redirects nothing.
    for control, redirects in ((0x01, False), (0x04, True), (0x08, True), (0x1D, True)):
        tree = pci_trees.switched_workstation(tmp_path / f"{control}", acs=control)
        bridges = {d.acs_redirects for d in read(tree).devices if d.kind == "bridge"}
        assert bridges == {redirects}


def test_a_user_who_may_read_only_the_header(tmp_path: Path) -> None:
    facts = read(pci_trees.switched_workstation(tmp_path, acs=0x1D, readable=False))
    assert not facts.acs_readable
    assert {d.acs_redirects for d in facts.devices if d.kind == "bridge"} == {None}


@given(st.binary(max_size=600))
def test_any_configuration_space_is_taken(config: bytes) -> None:
    assert acs_redirects(config) in (True, False, None)


def test_a_list_of_capabilities_that_never_ends() -> None:
    config = bytearray(4096)
    config[0x100:0x104] = (0x0001 | 1 << 16 | 0x100 << 20).to_bytes(4, "little")
    assert acs_redirects(bytes(config)) is None


@pytest.mark.parametrize(
    ("kind", "said"),
    [("DMA-FQ", "translating"), ("DMA", "translating"), ("identity", "passthrough")],
)
def test_what_the_iommu_does(tmp_path: Path, kind: str, said: str) -> None:
    facts = read(pci_trees.workstation(tmp_path, iommu=kind))
    assert facts.iommu == said
    assert named(facts, "GPU1").iommu_group == "15"
    assert named(facts, "nvme0").kind == "nvme"


def test_a_guest_with_one_gpu(tmp_path: Path) -> None:
    facts = read(pci_trees.one_gpu_passed_through(tmp_path))
    assert facts.virtual_machine == "yes"
    assert named(facts, "GPU0").above == ()
    assert named(facts, "GPU0").numa is None
    assert named(facts, "eth0").driver == "virtio-pci"
    assert facts.acs_readable  # there is no bridge to be read


def test_a_guest_with_domains(tmp_path: Path) -> None:
    facts = read(pci_trees.eight_gpus_of_a_cloud(tmp_path))
    assert facts.virtual_machine == "Microsoft Corporation Virtual Machine"
    assert named(facts, "GPU7").root == "pci0008:00"


@pytest.mark.parametrize(
    ("maker", "product", "guest"),
    [
        ("QEMU", "KVM Virtual Machine", True),
        ("Amazon EC2", "p6e-gb200.36xlarge", True),
        ("Amazon EC2", "c7g.metal", False),
        ("NVIDIA", "GB200 NVL", False),
    ],
)
def test_guests_without_a_flag(tmp_path: Path, maker: str, product: str, guest: bool) -> None:
    """ARM's /proc/cpuinfo has neither vendor nor flags."""
    tree = pci_trees.one_gpu_passed_through(tmp_path)
    tree.guest(maker, product)
    tree.file("proc/cpuinfo", "processor\t: 0\nFeatures\t: fp asimd\n")
    assert read(tree).virtual_machine == (f"{maker} {product}" if guest else "")


def test_a_file_of_the_provider(tmp_path: Path) -> None:
    tree = pci_trees.eight_gpus_of_a_cloud(tmp_path)
    assert read(tree).topology_file == ""
    tree.file("var/run/nvidia-topologyd/virtualTopology.xml", "<system/>")
    assert read(tree).topology_file == "/var/run/nvidia-topologyd/virtualTopology.xml"


def test_gpus_without_nvidias_driver_have_no_number(tmp_path: Path) -> None:
    tree = pci_trees.PciTree(tmp_path)
    tree.gpu("pci0000:00/0000:00:05.0", driver="vfio-pci")
    tree.gpu("pci0000:00/0000:00:06.0")
    tree.gpu("pci0000:00/0000:00:07.0", vendor="0x1002", kind="0x120000", driver="amdgpu")
    tree.gpu("pci0000:00/0000:00:08.0", vendor="0x1a03", driver="ast")  # the service processor's
    tree.nic("pci0000:00/0000:00:09.2")  # a virtual function that nobody uses
    names = [(d.bus_id[-4:], d.name) for d in read(tree).devices]
    assert names == [("05.0", ""), ("06.0", "GPU0"), ("07.0", "AMD0")]


def test_without_pci(tmp_path: Path) -> None:
    assert isinstance(read_pci(a_plan(), str(tmp_path)), Unread)


OPEN = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  580.159.04  Release Build\n"
CLOSED = "NVRM version: NVIDIA UNIX x86_64 Kernel Module  535.183.01  Sun May 12 19:39:15 UTC\n"


@pytest.mark.parametrize(
    ("files", "peermem", "dmabuf"),
    [
        ({"proc/driver/nvidia/version": OPEN}, "", True),
        ({"proc/driver/nvidia/version": CLOSED}, "", False),
        ({"proc/driver/nvidia/version": OPEN, "proc/sys/kernel/osrelease": "5.4.0"}, "", False),
        (
            {
                "proc/driver/nvidia/version": CLOSED,
                "sys/module/nvidia_peermem/version": "535.183.01\n",
            },
            "nvidia_peermem 535.183.01",
            False,
        ),
        (
            {
                "proc/driver/nvidia/version": CLOSED,
                "sys/kernel/mm/memory_peers/nv_mem/version": "1.3\n",
            },
            "nv_peer_mem 1.3",
            False,
        ),
    ],
)
def test_gpu_direct(tmp_path: Path, files: dict[str, str], peermem: str, dmabuf: bool) -> None:
    root = plant(tmp_path, {"proc/sys/kernel/osrelease": "6.8.0-45-generic\n", **files})
    direct = read_gpu_direct(a_plan(), root)
    assert (direct.peermem, direct.dmabuf) == (peermem, dmabuf)


def test_gpu_direct_without_the_driver(tmp_path: Path) -> None:
    direct = read_gpu_direct(a_plan(), str(tmp_path))
    assert isinstance(direct.dmabuf, Unread)
    assert direct.kernel == os.uname().release
