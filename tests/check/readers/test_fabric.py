from __future__ import annotations

from pathlib import Path

import pytest

from holdfast.check.readers.fabric import count_switches, read_fabric
from tests.check.readers.trees import plant
from tests.faults.machines import a_plan

PLACES = [f"0000:{bus:02x}:00.0" for bus in (5, 6, 7, 8)]


def pci(vendor: str = "0x10de", kind: str = "0x068000") -> dict[str, str]:
    return {
        f"/sys/bus/pci/devices/{place}/{name}": f"{text}\n"
        for place in PLACES
        for name, text in (("vendor", vendor), ("class", kind))
    }


@pytest.mark.parametrize(
    ("files", "count"),
    [
        (pci(), 4),  # a container: no device nodes, but the machine's /sys
        ({f"/proc/driver/nvidia-nvswitch/devices/{place}/x": "" for place in PLACES[:2]}, 2),
        (
            {
                **{f"/dev/nvidia-nvswitch{n}": "" for n in range(6)},
                "/dev/nvidia-nvswitchctl": "",
                "/dev/nvidia0": "",
            },
            6,
        ),
        ({**pci(), **{f"/dev/nvidia-nvswitch{n}": "" for n in range(4)}}, 4),
        (pci(kind="0x030200"), 0),  # the GPUs themselves
        (pci(vendor="0x8086"), 0),
        ({}, 0),
    ],
)
def test_switches_are_counted_by_whatever_shows_them(
    tmp_path: Path, files: dict[str, str], count: int
) -> None:
    assert count_switches(plant(tmp_path, files)) == count


def test_channels_of_imex_are_named(tmp_path: Path) -> None:
    root = plant(tmp_path, {"/dev/nvidia-caps-imex-channels/channel0": ""})
    found = read_fabric(a_plan(), root)
    assert found.imex_channels == ("/dev/nvidia-caps-imex-channels/channel0",)
    assert found.boot_seconds is not None
    assert found.boot_seconds > 0
