from __future__ import annotations

from pathlib import Path

from holdfast.check.readers import devices
from tests.check.readers.trees import plant
from tests.faults.machines import a_plan


def test_names_in_the_order_people_count(tmp_path: Path) -> None:
    nodes = ["nvidia0", "nvidia10", "nvidia2", "nvidiactl", "nvidia-uvm", "kfd", "null"]
    root = plant(tmp_path, {f"/dev/{name}": "" for name in nodes})
    assert devices.read_accelerators(a_plan(), root) == (
        "/dev/kfd",
        "/dev/nvidia0",
        "/dev/nvidia2",
        "/dev/nvidia10",
    )


def test_a_machine_without(tmp_path: Path) -> None:
    assert devices.read_accelerators(a_plan(), str(tmp_path)) == ()
