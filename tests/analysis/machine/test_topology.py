"""Distances and ways by NCCL's own rules, on trees as machines have them."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.analysis.machine import (
    GpuDirect,
    MachineFacts,
    NvLink,
    PciDevice,
    PciFacts,
    Unread,
    rocm,
)
from holdfast.analysis.machine.gpu import RocmFacts
from holdfast.analysis.machine.topology import (
    Topology,
    cpu_numbers,
    level,
    nvlinks_between,
    pcie_distance,
    topology,
)
from tests.check.readers import pci_trees
from tests.faults import made_gpus
from tests.faults.machines import a_plan, settings
from tests.faults.made_topologies import on_tree


def of(machine: MachineFacts) -> Topology:
    assert isinstance(machine.pci, PciFacts)
    return topology(machine, machine.pci)


def device(way: str, numa: int | None = 0) -> PciDevice:
    root, *above, bus_id = way.split("/")
    return PciDevice(
        bus_id=bus_id, kind="gpu", name="GPU0", above=tuple(above), root=root, numa=numa
    )


@pytest.mark.parametrize(
    ("one", "other", "distance"),
    [
        # (root, port, switch's upper and lower port, device)
        ("r0/p/s/d0/a", "r0/p/s/d1/b", "PIX"),
        ("r0/p/s/d0/t/e0/a", "r0/p/s/d1/u/e1/b", "PXB"),
        ("r0/p/s/d0/t/e0/a", "r0/p/s/d1/b", "PXB"),
        ("r0/p/s/d0/a", "r0/q/u/e0/b", "PHB"),
        ("r0/p/a", "r0/q/b", "PHB"),
        ("r0/a", "r0/b", "PHB"),
        ("r0/p/a", "r1/p/b", "NODE"),
    ],
)
def test_pcie_distance(one: str, other: str, distance: str) -> None:
    assert pcie_distance(device(one), device(other)) == distance
    assert pcie_distance(device(other), device(one)) == distance


def test_other_numa_nodes_are_far() -> None:
    assert pcie_distance(device("r0/a", 0), device("r1/b", 1)) == "SYS"
    assert pcie_distance(device("r0/a", None), device("r0/b", None)) == "PHB"


def test_nvlinks_to_a_peer_and_through_a_switch() -> None:
    one, other = made_gpus.an_sxm_gpu(0), made_gpus.an_sxm_gpu(1)
    assert nvlinks_between(one, other) == 18
    half = tuple(NvLink(index=n, active=n < 9, remote="switch") for n in range(18))
    assert nvlinks_between(one, made_gpus.an_sxm_gpu(1, nvlinks=half)) == 9
    bridge = tuple(
        NvLink(index=n, active=n != 3, remote="gpu", remote_bus_id=other.bus_id) for n in range(4)
    )
    assert nvlinks_between(made_gpus.a_gpu(0, nvlinks=bridge), other) == 3
    assert nvlinks_between(made_gpus.a_gpu(0), made_gpus.a_gpu(1)) == 0


@pytest.mark.parametrize(
    ("value", "said"),
    [("PHB", "PHB"), ("0", "LOC"), ("2", "PXB"), ("9", "SYS"), ("pix", "PXB"), ("", "PXB")],
)
def test_a_level_as_nccl_reads_it(value: str, said: str) -> None:
    (setting,) = settings(NCCL_NET_GDR_LEVEL=value)
    assert level(setting, "PXB") == said


def test_cpus() -> None:
    assert cpu_numbers("0-2,8") == {0, 1, 2, 8}
    assert cpu_numbers("") == set()


def test_every_gpu_of_a_rack_server_has_its_card(tmp_path: Path) -> None:
    seen = of(on_tree(pci_trees.dgx_h100(tmp_path), nvlink=True))
    near = {gpu.name: seen.nearest(gpu.name) for gpu in seen.named("gpu")}
    assert [[p.nic for p in pairs] for pairs in near.values()] == [
        [f"mlx5_{number}"] for number in (0, 3, 4, 5, 6, 9, 10, 11)
    ]
    assert all(pair.gpu_direct and pair.distance == "PIX" for (pair,) in near.values())
    assert {(pair.distance, pair.route) for pair in seen.gpu_pairs} == {("NV18", "NVLink")}
    assert len(seen.gpu_pairs) == 28


def test_switches_below_switches(tmp_path: Path) -> None:
    seen = of(on_tree(pci_trees.hgx_a100(tmp_path)))
    assert {pair.nic for pair in seen.nearest("GPU1")} == {"mlx5_0", "mlx5_1"}
    assert {pair.distance for pair in seen.nearest("GPU1")} == {"PXB"}
    assert seen.gpu_pairs[0].distance == "PIX"


def test_p2p_between_root_complexes_only_by_amds_rule(tmp_path: Path) -> None:
    tree = pci_trees.workstation(tmp_path)
    assert [(p.distance, p.route) for p in of(on_tree(tree)).gpu_pairs] == [("NODE", "P2P")]
    tree.bare_metal("GenuineIntel")
    assert of(on_tree(tree)).gpu_pairs[0].route == "host memory"
    off = on_tree(tree, nvlink=True, settings=settings(NCCL_P2P_DISABLE="1"))
    assert of(off).gpu_pairs[0].route == "host memory"


def test_amds_rule_counts_the_gpus_of_the_job(tmp_path: Path) -> None:
    tree = pci_trees.hgx_a100(tmp_path)
    two = of(on_tree(tree, plan=a_plan(nproc=2)))
    assert (two.p2p_level, of(on_tree(tree)).p2p_level) == ("SYS", "PXB")


def test_cards_reach_gpu_memory_only_where_they_are_near(tmp_path: Path) -> None:
    tree = pci_trees.eight_gpus_of_a_cloud(tmp_path)
    assert not any(pair.gpu_direct for pair in of(on_tree(tree)).nic_pairs)
    asked = on_tree(tree, settings=settings(NCCL_NET_GDR_LEVEL="PHB"))
    assert sum(bool(pair.gpu_direct) for pair in of(asked).nic_pairs) == 32  # same NUMA node
    grace = tuple(
        made_gpus.a_gpu(n, bus_id=f"{n + 1:04x}:00:00.0", name="NVIDIA GB200") for n in range(8)
    )
    joined = on_tree(tree, nvidia=made_gpus.nvidia(*grace))
    assert sum(bool(pair.gpu_direct) for pair in of(joined).nic_pairs) == 32


def test_no_means_no_gpu_direct(tmp_path: Path) -> None:
    tree = pci_trees.switched_workstation(tmp_path)
    without = GpuDirect(peermem="", dmabuf=False, kernel="6.8.0")
    assert not any(p.gpu_direct for p in of(on_tree(tree, gpu_direct=without)).nic_pairs)
    loaded = GpuDirect(peermem="nvidia_peermem 535.1", dmabuf=False, kernel="5.4.0")
    assert all(p.gpu_direct for p in of(on_tree(tree, gpu_direct=loaded)).nic_pairs)


def test_a_container_counts_the_gpus_it_may_use(tmp_path: Path) -> None:
    tree = pci_trees.switched_workstation(tmp_path)
    shown = made_gpus.nvidia(made_gpus.a_gpu(0, bus_id="0000:1b:00.0"))
    seen = of(on_tree(tree, nvidia=shown))
    assert [(gpu.name, gpu.bus_id) for gpu in seen.named("gpu")] == [("GPU0", "0000:1b:00.0")]
    assert seen.gpu_pairs == ()


def test_what_is_not_known_is_left_out(tmp_path: Path) -> None:
    gap = Unread(why="the test took it away")
    tree = pci_trees.switched_workstation(tmp_path)
    blind = on_tree(tree, nvidia=gap, gpu_direct=gap, rdma_devices=gap, settings=gap, rocm=gap)
    seen = of(blind)
    assert [gpu.name for gpu in seen.named("gpu")] == ["GPU0", "GPU1", "GPU2", "GPU3"]
    assert seen.models == {}
    assert not any(pair.gpu_direct for pair in seen.nic_pairs)


def test_what_joins_amds_gpus_is_not_claimed(tmp_path: Path) -> None:
    tree = pci_trees.PciTree(tmp_path)
    for number in (5, 6):
        way = f"pci0000:00/0000:00:0{number}.0"
        tree.gpu(way, vendor="0x1002", kind="0x120000", driver="amdgpu")
    tree.nic("pci0000:00/0000:00:07.0", "mlx5_0")
    seen = of(on_tree(tree))
    assert seen.gpu_pairs == ()
    assert {pair.gpu_direct for pair in seen.nic_pairs} == {None}


def test_the_statement_about_amds_gpus() -> None:
    said = rocm.statement(RocmFacts(gpus=("AMD Instinct MI300X",) * 8, driver="6.10.5"))
    assert said.startswith("8 AMD GPUs (8 x AMD Instinct MI300X, amdgpu 6.10.5)")
    assert "Not seen" in said
    assert rocm.statement(RocmFacts(gpus=(), driver="")) == ""
    assert rocm.statement(Unread(why="x")) == ""
