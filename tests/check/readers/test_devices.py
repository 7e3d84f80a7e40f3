from __future__ import annotations

from pathlib import Path

from holdfast.analysis.machine import RdmaPort
from holdfast.check.readers import devices
from tests.check.readers.trees import plant
from tests.faults.machines import a_plan


def test_names_in_the_order_people_count(tmp_path: Path) -> None:
    nodes = ["nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "kfd", "null"]
    root = plant(
        tmp_path,
        {
            **{f"/dev/{name}": "" for name in nodes},
            "/sys/class/infiniband/mlx5_1/node_type": "1: CA",
            "/sys/class/infiniband/mlx5_1/ports/1/state": "4: ACTIVE\n",
            "/sys/class/infiniband/mlx5_1/ports/1/link_layer": "InfiniBand\n",
            "/sys/class/infiniband/mlx5_1/ports/2/state": "1: DOWN\n",
            "/sys/class/infiniband/mlx5_1/ports/2/link_layer": "Ethernet\n",
            "/sys/class/infiniband/mlx5_0/node_type": "1: CA",
        },
    )
    assert devices.read_rdma_devices(a_plan(), root) == ("mlx5_0", "mlx5_1")
    assert devices.read_rdma_ports(a_plan(), root) == (
        RdmaPort(device="mlx5_1", number=1, state="ACTIVE", link_layer="InfiniBand"),
        RdmaPort(device="mlx5_1", number=2, state="DOWN", link_layer="Ethernet"),
    )
    assert devices.read_accelerators(a_plan(), root) == (
        "/dev/kfd",
        "/dev/nvidia0",
        "/dev/nvidia2",
        "/dev/nvidia10",
    )


def test_a_machine_without(tmp_path: Path) -> None:
    assert devices.read_rdma_devices(a_plan(), str(tmp_path)) == ()
    assert devices.read_rdma_ports(a_plan(), str(tmp_path)) == ()
    assert devices.read_accelerators(a_plan(), str(tmp_path)) == ()
