from __future__ import annotations

from pathlib import Path

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
            "/sys/class/infiniband/mlx5_0/node_type": "1: CA",
        },
    )
    assert devices.read_rdma_devices(a_plan(), root) == ("mlx5_0", "mlx5_1")
    assert devices.read_accelerators(a_plan(), root) == (
        "/dev/kfd",
        "/dev/nvidia0",
        "/dev/nvidia2",
        "/dev/nvidia10",
    )


def test_a_machine_without(tmp_path: Path) -> None:
    assert devices.read_rdma_devices(a_plan(), str(tmp_path)) == ()
    assert devices.read_accelerators(a_plan(), str(tmp_path)) == ()
